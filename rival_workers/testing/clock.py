"""Time that passes when it is told to: the clock of a lab, and the timeouts of attempts by that clock."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

#: The smallest step of time that a store can tell.
MOMENT = 1e-6


class Clock:
    """Whole microseconds, as stores keep them: what is due at a time is due when the clock has been set to it."""

    def __init__(self, at: float = 1_700_000_000.0) -> None:
        self._at = round(at * 1e6)

    def __call__(self) -> float:
        return self._at / 1e6

    @property
    def now(self) -> dt.datetime:
        return dt.datetime.fromtimestamp(self(), dt.UTC)

    def advance(self, seconds: float) -> None:
        self._at += round(seconds * 1e6)

    def set(self, at: float) -> None:
        """Never back, and never a fraction of a microsecond too early."""
        wanted = round(at * 1e6)
        self._at = max(self._at, wanted if wanted / 1e6 >= at else wanted + 1)


@dataclass(eq=False)
class VirtualTimer:
    clock: Clock
    callback: Callable[[], None]
    #: None: it has gone off, or is not set.
    at: float | None = None

    def put_off(self, seconds: float) -> None:
        self.at = self.clock() + seconds


class VirtualTimers:
    """The timeouts of the attempts that are being made. They go off while the clock is moved, in the middle of the
    attempt, as they would in a worker's own thread.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._set: list[VirtualTimer] = []

    @contextmanager
    def after(self, seconds: float | None, callback: Callable[[], None]) -> Iterator[VirtualTimer]:
        timer = VirtualTimer(self._clock, callback)
        if seconds is not None:
            timer.put_off(seconds)
        self._set.append(timer)
        try:
            yield timer
        finally:
            self._set.remove(timer)

    @property
    def next(self) -> float | None:
        """When the next one goes off."""
        return min((timer.at for timer in self._set if timer.at is not None), default=None)

    def go_off(self) -> None:
        """Those whose time has come."""
        due = [(timer.at, timer) for timer in self._set if timer.at is not None and timer.at <= self._clock()]
        for _, timer in sorted(due, key=lambda one: one[0]):
            timer.at = None
            timer.callback()
