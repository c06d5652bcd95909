"""Makes calls of several threads together: what comes while a call is being made waits for its end, and is made next,
as one. A call that comes alone is made at once, in its own thread.

One of the waiting threads makes the calls of all. No thread only waits, and no call waits for more to come.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

Call = TypeVar("Call")
Answer = TypeVar("Answer")

#: The most calls that are made together.
MOST = 64


class _Entry(Generic[Call, Answer]):
    __slots__ = ("answer", "call", "error", "leads", "woken")

    def __init__(self, call: Call) -> None:
        self.call = call
        self.answer: Answer | None = None
        self.error: BaseException | None = None
        #: Its thread makes the calls of those that wait now.
        self.leads = False
        self.woken = threading.Event()


class JoinedCalls(Generic[Call, Answer]):
    def __init__(self, make: Callable[[Sequence[Call]], Sequence[Answer]]) -> None:
        """`make` answers each call, in their order. What it raises, each of their threads raises."""
        self._make = make
        self._lock = threading.Lock()
        self._is_busy = False
        self._waiting: deque[_Entry[Call, Answer]] = deque()

    def call(self, call: Call) -> Answer:
        own = _Entry[Call, Answer](call)
        with self._lock:
            own.leads, self._is_busy = not self._is_busy, True
            if not own.leads:
                self._waiting.append(own)
        if not own.leads:
            own.woken.wait()
        if own.leads:
            self._lead(own)
        if own.error is not None:
            raise own.error
        return own.answer  # type: ignore[return-value]

    def _lead(self, own: _Entry[Call, Answer]) -> None:
        group = [own]
        with self._lock:
            while self._waiting and len(group) < MOST:
                group.append(self._waiting.popleft())
        try:
            for one, answer in zip(group, self._make([one.call for one in group]), strict=True):
                one.answer = answer
        except BaseException as error:
            for one in group:
                one.error = error
        finally:
            self._hand_on()
            for one in group:
                one.woken.set()

    def _hand_on(self) -> None:
        """The first of those that have come meanwhile makes the next calls."""
        with self._lock:
            after = self._waiting.popleft() if self._waiting else None
            self._is_busy = after is not None
        if after is not None:
            after.leads = True
            after.woken.set()
