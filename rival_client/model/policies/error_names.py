"""Names of errors, for `retry_on` and `no_retry_on`: a class, its dotted name, a pattern, the code of a StepError."""

from __future__ import annotations

import builtins
from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import Any


def dotted_name(error: type[BaseException]) -> str:
    """`TimeoutError`, `openai.RateLimitError`."""
    return error.__qualname__ if error.__module__ == "builtins" else f"{error.__module__}.{error.__qualname__}"


def names_of(error: type[BaseException], code: str | None = None) -> tuple[str, ...]:
    """The names of the class and of its base classes; the code is one more name."""
    own = tuple(dotted_name(one) for one in error.__mro__ if issubclass(one, BaseException))
    return own if code is None else (code, *own)


def matching(patterns: Iterable[str], names: Iterable[str]) -> str | None:
    """The first pattern that names one of these. A pattern without a dot is also the name of a class alone, and
    `builtins.KeyError` is `KeyError`."""
    names = tuple(names)
    own = (f"builtins.{name}" for name in names if isinstance(getattr(builtins, name, None), type))
    known = {*names, *own, *(name.rpartition(".")[2] for name in names)}
    return next((one for one in patterns if any(fnmatchcase(name, one) for name in known)), None)


def as_names(option: str, given: Any, problems: list[str]) -> list[str]:
    """`retry_on` as users write it: a class or a text, or several."""
    several = given if isinstance(given, list | tuple | set | frozenset) else (given,)
    found: list[str] = []
    for one in several:
        if isinstance(one, str) and one:
            found.append(one)
        elif isinstance(one, type) and issubclass(one, BaseException):
            found.append(dotted_name(one))
        else:
            problems.append(
                f"option {option}: {one!r} is not an error: give classes of exceptions, their names ('openai.*'), or "
                "codes of StepErrors"
            )
    return found
