"""How a flow's attempt ends: signals that end it without an outcome, and the checkpoints whose failures an exception
comes from. Signals are not Exceptions, so that `except Exception` in a flow does not catch them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from rival_client.model.payload import Json
from rival_workers.errors import StepFailed


class Suspend(BaseException):
    """The flow waits; its commit has succeeded."""


@dataclass(frozen=True)
class Continued:
    """What the commit of continue_as stores: an attempt that follows it directly need not read it."""

    input: Json
    state: Json
    #: The state has changed since the last commit.
    has_new_state: bool = False


class Again(Suspend):
    """The flow starts over: the worker commits that when the flow's function has ended, and may continue with it."""

    def __init__(self, continued: Continued) -> None:
        super().__init__(continued)
        self.continued = continued


class Moved(BaseException):
    """The attempt is stale: the flow timed out, was cancelled, or was taken over."""


class OutOfReach(Moved):
    """An outage of the database was longer than the attempt could wait: its last commit may have succeeded or not."""


class Killed(BaseException):
    """Simulates the end of the process at this point, in tests: nothing is committed or released after it."""


#: The number of causes and members of groups that are searched.
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
