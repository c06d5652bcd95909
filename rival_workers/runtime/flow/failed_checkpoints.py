"""Finds the checkpoints of a flow whose failures an exception comes from: a retry of the flow does them again."""

from __future__ import annotations

from collections.abc import Iterator

from rival_workers.errors import StepFailed

#: Causes of causes, and members of groups, that are looked at.
_MOST = 1000


def failed_checkpoints(error: BaseException) -> list[str]:
    """Paths, each once: of the exception itself, of the members of a group, or else of its cause or context."""
    return list(dict.fromkeys(_failed(error)))


def _failed(error: BaseException) -> Iterator[str]:
    left, seen = [error], 0
    while left and seen < _MOST:
        one, seen = left.pop(0), seen + 1
        if issubclass(type(one), StepFailed):
            yield str(one.step)  # type: ignore[attr-defined]
        elif issubclass(type(one), BaseExceptionGroup):
            left += one.exceptions  # type: ignore[attr-defined]
        elif (cause := one.__cause__ or one.__context__) is not None:
            left.append(cause)
