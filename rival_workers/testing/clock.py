"""The virtual clock of a lab, and the timeouts of attempts by that clock. Time passes only by calls."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

#: The smallest difference of times that a store keeps, in seconds.
MOMENT = 1e-6


class Clock:
    """Counts whole microseconds, as stores do: a row that is due at a time is due once the clock is set to it."""

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
    #: None: it has fired, or is not set.
    at: float | None = None

    def put_off(self, seconds: float) -> None:
        self.at = self.clock() + seconds


class VirtualTimers:
    """The timeouts of running attempts. They fire while the clock is moved, in the middle of the attempt; in a worker a
    thread fires them.
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
        """When the next timeout fires."""
        return min((timer.at for timer in self._set if timer.at is not None), default=None)

    def fire(self) -> None:
        """Fires all timeouts that are due."""
        due = [(timer.at, timer) for timer in self._set if timer.at is not None and timer.at <= self._clock()]
        for _, timer in sorted(due, key=lambda one: one[0]):
            timer.at = None
            timer.callback()
