"""Checks that a flow's function may use `ctx`. When the attempt has ended (suspended, moved, failed, returned), every
call raises, also in the `finally` and `except` blocks of the flow.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from rival_workers.errors import NotInFlows

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
