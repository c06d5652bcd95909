"""The address of a step in its run: `charge`, `notify/send_email`, `batches[3]/process`, `charge!on_error`.

A composite's children are below it (`/`), those of a loop or for_each below the number of their iteration or item
(`[3]/`). The functions of a composite have its path and a role (`!when`, `!items`), and so have the handler and the
compensation of a step (`charge!compensate`) and the function that it falls back to (`charge!fallback`). A path
without its numbers is a place in the plan.
"""

from __future__ import annotations

import re

from rival_client.model.kinds import CANCEL as CANCEL

HANDLER = "!on_error"
#: Of a step: its compensation. Of a workflow or the run: the row that waits for all compensations in it.
COMPENSATION = "!compensate"
#: The function that a step falls back to.
FALLBACK = "!fallback"
#: The function that makes the idempotency key of a step, or the key that a wait needs.
KEY = "!key"

_NUMBER = re.compile(r"\[\d+\]")
#: An operator can give any path: `f[]` and a number of thousands of digits are not iterations.
_ITERATION = re.compile(r"(.*)\[(\d{1,18})\]", re.ASCII | re.DOTALL)


def place_of(path: str) -> str:
    """`batches[3]/process` → `batches[]/process`."""
    return _NUMBER.sub("[]", path) if "[" in path else path


def role_of(path: str) -> tuple[str, str]:
    """`pages[2]!until` → (`pages[2]`, `until`); a plain step has no role."""
    base, _, role = path.partition("!")
    return base, role


def scope_of(path: str) -> str:
    """The prefix of the path and its siblings: `batches[3]/process` → `batches[3]/`; at the top, nothing."""
    return path[: path.rfind("/") + 1]


def above(path: str) -> tuple[str, int | None]:
    """The composite that a step is in, and the iteration or item: `batches[3]/process` → (`batches`, 3)."""
    return iteration_of(scope_of(path)[:-1])


def iteration_of(path: str) -> tuple[str, int | None]:
    """`pages[2]` → (`pages`, 2); without a number at the end, the path itself and None."""
    found = _ITERATION.fullmatch(path)
    return (found[1], int(found[2])) if found else (path, None)


def enclosing(path: str, place: str) -> str:
    """The part of a path that is at the given place: (`a[3]/b/c`, `a[]/b`) → `a[3]/b`."""
    parts = path.split("/")[: place.count("/") + 1]
    found = "/".join(parts).partition("!")[0]
    return found if place.endswith("]") or not found.endswith("]") else iteration_of(found)[0]


def is_handler(path: str) -> bool:
    return path.endswith(HANDLER)


def is_compensation(path: str) -> bool:
    return path.endswith(COMPENSATION)


def is_fallback(path: str) -> bool:
    return path.endswith(FALLBACK)


def is_reaction(path: str) -> bool:
    """A handler, a compensation or a fallback, which run because something has failed; the end of a cancelled run."""
    return path.endswith((HANDLER, COMPENSATION, FALLBACK)) or path == CANCEL
