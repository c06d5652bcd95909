"""How a flow's attempt ends: signals that end it without an outcome, and the checkpoints whose failures an exception
comes from. Signals are not Exceptions, so that `except Exception` in a flow does not catch them.

`FlowGuard` checks that a flow's function may use `ctx`. When the attempt has ended (suspended, moved, failed,
returned), every call raises, also in the `finally` and `except` blocks of the flow.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

from rival_client.model.payload import Json
from rival_workers.errors import NotInFlows, StepFailed


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


class AttemptOver(Moved):
    """The attempt is stale, and its coroutine was cancelled for that: it has no result that could be refused."""


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


T = TypeVar("T")

log = logging.getLogger("rival.flows")

#: Calls on `ctx` of a stopped flow until a warning is logged: more than any `finally` blocks need.
MANY_CALLS = 100


class FlowGuard:
    def __init__(self, thread: int, flow: str, run_id: str) -> None:
        """`thread`: the one that runs the flow's function."""
        self._flow, self._run_id, self._calls_after_stop = flow, run_id, 0
        self._thread, self._in_step, self._has_ended = thread, False, False
        #: Why the attempt has ended: raised by every call from then on.
        self.stopped: BaseException | None = None

    def check(self) -> None:
        """Called before each call on ctx has an effect."""
        self.check_not_stopped()
        if not self.is_own_code:
            raise NotInFlows(
                "ctx of a flow was used inside a step, or in another thread. Only the flow's own function may use it: "
                "let the step return a value, and call ctx with that."
            )

    def check_not_stopped(self) -> None:
        if self.stopped is None:
            return
        if self.is_own_code:
            self._count_call_after_stop()
        raise self.stopped

    def _count_call_after_stop(self) -> None:
        """`except BaseException` in a loop around a wait catches the exception that stops the flow, and every later
        one: the function then runs until its process ends."""
        self._calls_after_stop += 1
        if self._calls_after_stop == MANY_CALLS:
            log.warning(
                "run %s: flow %s caught the exception that stops it %d times and still runs, so it occupies its "
                "worker. Catch Exception around a wait, not BaseException.",
                *(self._run_id, self._flow, MANY_CALLS),
            )

    @property
    def is_own_code(self) -> bool:
        """The flow's own function runs, and not a step of it."""
        return threading.get_ident() == self._thread and not self._in_step

    def guarded(self, action: Callable[[], T], *harmless: type[Exception]) -> T:
        """An error of the action ends the attempt, also if the flow catches it, unless it is `harmless`."""
        try:
            return action()
        except harmless:
            raise
        except BaseException as error:
            self.stopped = error
            raise

    @contextmanager
    def in_step(self) -> Iterator[None]:
        """The flow's thread runs a step, which may not use ctx."""
        self._in_step = True
        try:
            yield
        finally:
            self._in_step = False

    def end(self) -> None:
        """The attempt has ended: calls on its ctx raise from now on."""
        if self.stopped is None:
            self._has_ended = True
            self.stopped = NotInFlows(
                "the flow has ended, so its ctx cannot be used. Is an await missing, or is the flow's function not an "
                "async one?"
            )

    @property
    def is_interrupted(self) -> bool:
        """The attempt ended before the flow's function did."""
        return self.stopped is not None and not self._has_ended

    def raise_interruption(self) -> None:
        if self.stopped is not None and self.is_interrupted:
            raise self.stopped
