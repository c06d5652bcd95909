"""Labels of runs: a few names with a short text each, such as `{"tenant": "acme"}`. They are for finding runs, for
rules and for the keys of limits. This module checks them; it has no I/O.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from rival_client.errors import InvalidArgument
from rival_client.model.checks import argument_errors, arguments

#: Labels of one run, those of its parents included.
MAX_LABELS = 20
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_./-]{0,62}", re.ASCII)


def labels(argument: str, value: object) -> dict[str, str] | None:
    """Checked labels, values as text; None if there are none. InvalidArgument lists all problems."""
    if not isinstance(value, Mapping):
        raise argument_errors.invalid(argument, value, 'a mapping of labels, as in {"tenant": "acme"}')
    given: dict[Any, Any] = dict(value)
    problems = list(_problems(given))
    if problems:
        raise InvalidArgument(argument, " ".join(problems))
    return {name: arguments.key(one, name) for name, one in given.items()} or None


def _problems(given: Mapping[Any, Any]) -> Iterator[str]:
    if len(given) > MAX_LABELS:
        yield f"{len(given)} labels; give at most {MAX_LABELS}."
    for name, value in given.items():
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            yield (
                f"{argument_errors.shown(name)} is not the name of a label: give 1 to 63 letters, digits and ._/-, "
                "beginning with a letter."
            )
            continue
        try:
            arguments.key(value, name, "the value of a label")
        except InvalidArgument as error:
            yield f"{name}: {error.problem}"


def merged(inherited: Mapping[str, str] | None, own: Mapping[str, str] | None) -> dict[str, str] | None:
    """The labels of a child: its parent's, with its own over them."""
    both = {**(inherited or {}), **(own or {})}
    if len(both) > MAX_LABELS:
        raise InvalidArgument("labels", f"{len(both)} with those of the parent run; a run has at most {MAX_LABELS}.")
    return both or None
