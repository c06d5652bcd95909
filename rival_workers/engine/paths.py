"""The address of a step in its run: `charge`, `notify/send_email`, `batches[3]/process`, `charge!on_error`.

A composite's children are below it (`/`), those of a repeated one below the number of their turn (`[3]/`), and what is
asked on its behalf hangs on it (`!when`, `!items`), as what undoes a step hangs on that (`charge!compensate`). A path
without its numbers is a place in the plan.
"""

from __future__ import annotations

import re

HANDLER = "!on_error"
#: Of a step: what undoes it. Of a workflow or the run: the undoing of all that was done in it.
COMPENSATION = "!compensate"
#: What may not be part of a name, since it is part of a path.
RESERVED = "/[]!"

_NUMBER = re.compile(r"\[\d+\]")
#: An operator may ask for any path: `f[]` and a number of thousands of digits are not turns.
_ITERATION = re.compile(r"(.*)\[(\d{1,18})\]", re.ASCII | re.DOTALL)


def place_of(path: str) -> str:
    """`batches[3]/process` → `batches[]/process`."""
    return _NUMBER.sub("[]", path) if "[" in path else path


def role_of(path: str) -> tuple[str, str]:
    """`pages[2]!until` → (`pages[2]`, `until`); a plain step has no role."""
    base, _, role = path.partition("!")
    return base, role


def scope_of(path: str) -> str:
    """What the path's siblings begin with: `batches[3]/process` → `batches[3]/`; at the top, nothing."""
    return path[: path.rfind("/") + 1]


def above(path: str) -> tuple[str, int | None]:
    """The composite that a step is in, and in which of its turns: `batches[3]/process` → (`batches`, 3)."""
    return iteration_of(scope_of(path)[:-1])


def iteration_of(path: str) -> tuple[str, int | None]:
    """`pages[2]` → (`pages`, 2); a path that does not end in a number is no turn."""
    found = _ITERATION.fullmatch(path)
    return (found[1], int(found[2])) if found else (path, None)


def enclosing(path: str, place: str) -> str:
    """The beginning of a path that stands at the given place: (`a[3]/b/c`, `a[]/b`) → `a[3]/b`."""
    parts = path.split("/")[: place.count("/") + 1]
    found = "/".join(parts).partition("!")[0]
    return found if place.endswith("]") or not found.endswith("]") else iteration_of(found)[0]


def is_handler(path: str) -> bool:
    return path.endswith(HANDLER)


def is_compensation(path: str) -> bool:
    return path.endswith(COMPENSATION)


def is_reaction(path: str) -> bool:
    """It is called because something has failed."""
    return path.endswith((HANDLER, COMPENSATION))
