"""Timers of this process: one thread calls a callback when an attempt takes too long, another begins or publishes
messages whose countdown is over.

A timer is not the only copy of anything: the row's `timeout_at` or `due_at` decides. If this process cannot run its
timer, a keeper applies the timeout, or publishes the message.
"""

from __future__ import annotations

import heapq
import itertools
import logging
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from rival_client.broker.message import AnyMessage
from rival_client.model.starts.queues import USUAL_ROUTE, Route

if TYPE_CHECKING:  # it needs redis, which a workflow file does not
    from rival_client.broker.doorbell import Doorbell

T = TypeVar("T")
log = logging.getLogger("rival.timers")


class Timer(Protocol):
    def put_off(self, seconds: float) -> None:
        """Postpone the callback to `seconds` from now."""


class AttemptTimers(Protocol):
    def after(self, seconds: float | None, callback: Callable[[], None]) -> AbstractContextManager[Timer]:
        """Call `callback` if the block takes longer than `seconds`, or than the time it is put off to."""


class _Heap(ABC, Generic[T]):
    """Values with times, and a thread that applies those whose time has come. The first value starts the thread."""

    name: str

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, T]] = []
        self._numbers = itertools.count()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    @abstractmethod
    def _apply(self, due: Sequence[T]) -> None: ...

    def _is_cancelled(self, number: int) -> bool:
        return False

    def _set(self, at: float, value: T) -> int:
        with self._changed:
            number = next(self._numbers)
            heapq.heappush(self._heap, (at, number, value))
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name=self.name, daemon=True)
                self._thread.start()
            if self._heap[0][1] == number:
                self._changed.notify()
            return number

    def _run(self) -> None:
        while True:
            if due := self._due():
                self._apply(due)

    def _due(self) -> list[T]:
        with self._changed:
            self._changed.wait(self._heap[0][0] - time.monotonic() if self._heap else None)
            due = []
            while self._heap and self._heap[0][0] <= time.monotonic():
                _, number, value = heapq.heappop(self._heap)
                if not self._is_cancelled(number):
                    due.append(value)
            return due


class Timers(_Heap[Callable[[], None]]):
    name = "rival.timers"

    def __init__(self) -> None:
        super().__init__()
        self._cancelled: set[int] = set()

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

    def _cancel(self, number: int) -> None:
        with self._changed:
            self._cancelled.add(number)
            # Cancelled entries with long timeouts would otherwise stay in the heap until they are due.
            if len(self._cancelled) > 100 and len(self._cancelled) * 2 > len(self._heap):
                self._heap = [entry for entry in self._heap if entry[1] not in self._cancelled]
                heapq.heapify(self._heap)
                self._cancelled.clear()

    def _is_cancelled(self, number: int) -> bool:
        if number not in self._cancelled:
            return False
        self._cancelled.discard(number)
        return True

    def _apply(self, due: Sequence[Callable[[], None]]) -> None:
        for callback in due:
            try:
                callback()
            except Exception:
                log.exception("a timeout could not be applied; a keeper applies it")


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


class CountdownDoorbell(_Heap[AnyMessage]):
    """A doorbell that keeps messages with a countdown in this process until they are due. Celery would keep them in
    the memory of a worker as well, but takes only ten that are due at once, and looks at a whole millisecond.
    """

    name = "rival.countdowns"

    def __init__(self, doorbell: Doorbell) -> None:
        super().__init__()
        self._doorbell = doorbell
        self._stopped = False
        self.has_priorities = doorbell.has_priorities
        #: Begins to handle a due message in this process. False: it is published.
        self.take: Callable[[AnyMessage], bool] = lambda message: False

    def publish(self, messages: Sequence[AnyMessage], changed: Sequence[str] = ()) -> bool:
        later = [one for one in messages if one.countdown > 0] if not self._stopped else []
        if not later:
            return self._doorbell.publish(messages, changed)
        now = time.monotonic()
        for message in later:
            self._set(now + message.countdown, message)
        at_once = [one for one in messages if one.countdown <= 0]
        return self._doorbell.publish(at_once, changed) if at_once or changed else True

    def _apply(self, due: Sequence[AnyMessage]) -> None:
        try:
            messages = [replace(message, countdown=0.0) for message in due]
            if left := [message for message in messages if not self.take(message)]:
                self._doorbell.publish(left)
        except Exception:
            log.exception("messages could not be published; a keeper publishes them")

    def hand_over(self) -> None:
        """The process stops: publish the messages with the rest of their countdowns, so that other workers get them."""
        with self._changed:
            self._stopped, now = True, time.monotonic()
            left = [replace(message, countdown=max(0.0, at - now)) for at, _, message in self._heap]
            self._heap = []
        if left:
            self._doorbell.publish(left)

    def backlog(self, queue: str | None = None) -> int | None:
        return self._doorbell.backlog(queue)

    def oldest(self, route: Route = USUAL_ROUTE) -> float:
        return self._doorbell.oldest(route)

    def answers(self) -> bool | None:
        return self._doorbell.answers()

    def check_epoch(self) -> bool:
        return self._doorbell.check_epoch()

    def close(self) -> None:
        self.hand_over()
        self._doorbell.close()
