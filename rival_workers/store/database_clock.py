"""Estimates the database's clock in this process, from answers that contain its time. A countdown that is measured from
the arrival of its own commit's answer is late by the time that the answer took: long, if many threads wait for theirs.

It decides nothing: a claim compares the time of its row with the database's clock itself.
"""

from __future__ import annotations

import time
from collections.abc import Callable

#: By how much two clocks may drift apart, in seconds per second.
DRIFT = 0.0002
#: Seconds after which any answer replaces the estimate: the database's clock may have been set back.
OLD = 30.0


class DatabaseClock:
    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        #: What the own clock shows minus what the database's shows, at most; and when that was read. A pair, so that
        #: threads need no lock: one of two simultaneous reads is lost.
        self._offset = (float("inf"), 0.0)

    def read(self, at: float) -> None:
        """An answer has arrived that the database wrote at that time, in seconds since the epoch."""
        now = self._clock()
        offset = now - at
        if offset <= self._ahead(now) or now - self._offset[1] > OLD:
            self._offset = (offset, now)

    def until(self, at: float) -> float:
        """Seconds until the database's clock shows that time, and not less: the quickest of the recent answers was the
        least late. Call `read` before."""
        now = self._clock()
        return at + self._ahead(now) - now

    def _ahead(self, now: float) -> float:
        offset, read_at = self._offset
        return offset + (now - read_at) * DRIFT
