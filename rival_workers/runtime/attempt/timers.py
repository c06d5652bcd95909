"""Timers for the attempts of this process: one thread calls a callback when an attempt takes too long.

The row's `timeout_at` decides. If this process cannot run its timer, a keeper applies the timeout.
"""

from __future__ import annotations

import heapq
import itertools
import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

log = logging.getLogger("rival.timers")


class Timer(Protocol):
    def put_off(self, seconds: float) -> None:
        """Postpone the callback to `seconds` from now."""


class AttemptTimers(Protocol):
    def after(self, seconds: float | None, callback: Callable[[], None]) -> AbstractContextManager[Timer]:
        """Call `callback` if the block takes longer than `seconds`, or than the time it is put off to."""


class Timers:
    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._cancelled: set[int] = set()
        self._numbers = itertools.count()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    @contextmanager
    def after(self, seconds: float | None, callback: Callable[[], None]) -> Iterator[Timer]:
        timer = _Timer(self, callback)
        if seconds is None:
            yield timer
            return
        timer.put_off(seconds)
        try:
            yield timer
        finally:
            timer.cancel()

    def _set(self, at: float, callback: Callable[[], None]) -> int:
        with self._changed:
            number = next(self._numbers)
            heapq.heappush(self._heap, (at, number, callback))
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="rival.timers", daemon=True)
                self._thread.start()
            if self._heap[0][1] == number:
                self._changed.notify()
            return number

    def _cancel(self, number: int) -> None:
        with self._changed:
            self._cancelled.add(number)
            # Cancelled entries with long timeouts would otherwise stay in the heap until they are due.
            if len(self._cancelled) > 100 and len(self._cancelled) * 2 > len(self._heap):
                self._heap = [entry for entry in self._heap if entry[1] not in self._cancelled]
                heapq.heapify(self._heap)
                self._cancelled.clear()

    def _run(self) -> None:
        while True:
            for callback in self._due():
                try:
                    callback()
                except Exception:
                    log.exception("a timeout could not be applied; a keeper applies it")

    def _due(self) -> list[Callable[[], None]]:
        with self._changed:
            self._changed.wait(self._heap[0][0] - time.monotonic() if self._heap else None)
            due = []
            while self._heap and self._heap[0][0] <= time.monotonic():
                _, number, callback = heapq.heappop(self._heap)
                if number in self._cancelled:
                    self._cancelled.discard(number)
                else:
                    due.append(callback)
            return due


class _Timer:
    def __init__(self, timers: Timers, callback: Callable[[], None]) -> None:
        self._timers, self._callback = timers, callback
        self._number: int | None = None

    def put_off(self, seconds: float) -> None:
        self.cancel()
        self._number = self._timers._set(time.monotonic() + seconds, self._callback)

    def cancel(self) -> None:
        if self._number is not None:
            self._timers._cancel(self._number)
            self._number = None
