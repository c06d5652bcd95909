"""The time limits of what this process runs: an alarm for each, and for those that want it the process's own end.

A step that overstays its limit goes on without its run, unless it was to be killed with its process: only a process
that runs one attempt at a time may be (prefork).
"""

from __future__ import annotations

import faulthandler
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rival_workers.engine.plan import StepConfig
from rival_workers.runtime.attempt.timers import AttemptTimers, Timer, Timers

#: Seconds after its timeout at which a process that can't even run its alarm is ended.
KILL_SLACK = 2.0


class TimeLimits:
    def __init__(self, before_kill: Callable[[], None]) -> None:
        self._before_kill, self._watchdog = before_kill, _Watchdog()
        #: How time is kept; a lab has ways of its own.
        self.timers: AttemptTimers = Timers()
        #: Seconds that only go forward; a lab has a clock that skips.
        self.clock: Callable[[], float] = time.monotonic
        #: A process of its own per attempt: a step that overstays may be killed with it.
        self.may_kill = False

    @contextmanager
    def kept(self, config: StepConfig, when_over: Callable[[], bool]) -> Iterator[Timer]:
        """Call `when_over` if the block takes too long; False from it: it has just ended, after all."""
        kills = self.may_kill and config.kill_on_timeout
        kill = _Kill(when_over, self._before_kill)
        within = config.timeout + KILL_SLACK if kills and config.timeout else None
        over = kill.over if kills else lambda: _ignored(when_over())
        with self.timers.after(config.limit, over) as timer, self._watchdog.watching(within):
            try:
                yield timer
            finally:
                kill.end()


def _ignored(_: bool) -> None:
    """An alarm's answer does not matter where nothing is killed."""


class _Kill:
    """The end of a process whose attempt takes too long. It commits and publishes first. An attempt that ends meanwhile
    waits for it: its process must not take another message and be killed with that.
    """

    def __init__(self, when_over: Callable[[], bool], before_kill: Callable[[], None]) -> None:
        self._when_over, self._before_kill = when_over, before_kill
        self._lock = threading.Lock()
        self._ended = False

    def over(self) -> None:
        with self._lock:
            if not self._ended and self._when_over():
                self._before_kill()
                os.kill(os.getpid(), signal.SIGKILL)

    def end(self) -> None:
        with self._lock:
            self._ended = True


class _Watchdog:
    """Ends a process whose alarms can't ring, since a step holds the interpreter's lock: this one is written in C.
    There is one in a process, so it is set to whichever limit comes first.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ends: dict[object, float] = {}

    @contextmanager
    def watching(self, seconds: float | None) -> Iterator[None]:
        if seconds is None:
            yield
            return
        mine = object()
        self._set(mine, time.monotonic() + seconds)
        try:
            yield
        finally:
            self._set(mine, None)

    def _set(self, whose: object, end: float | None) -> None:
        with self._lock:
            self._ends.pop(whose, None)
            if end is not None:
                self._ends[whose] = end
            if self._ends:
                faulthandler.dump_traceback_later(max(0.001, min(self._ends.values()) - time.monotonic()), exit=True)
            else:
                faulthandler.cancel_dump_traceback_later()
