"""The queues of the in-process transport, by name."""

from __future__ import annotations

import threading
from collections import deque
from queue import Empty
from typing import Any

from kombu.transport import virtual

RawMessage = dict[str, Any]


class Broker:
    """The queues and routes of one namespace; each change increments `version` and wakes all consumers that wait.

    A consumer reads `version`, checks its queues, and then waits until `version` differs from the one it read: a
    message that arrives between the check and the wait is not missed.
    """

    def __init__(self) -> None:
        self.state = virtual.BrokerState()
        self.changed = threading.Condition()
        self.version = 0
        self._queues: dict[str, deque[RawMessage]] = {}

    def wake(self) -> None:
        with self.changed:
            self.version += 1
            self.changed.notify_all()

    def wait(self, seen: int, timeout: float | None) -> None:
        with self.changed:
            self.changed.wait_for(lambda: self.version != seen, timeout)

    def declare(self, queue: str) -> None:
        self._queues.setdefault(queue, deque())

    def has(self, queue: str) -> bool:
        return queue in self._queues

    def size(self, queue: str) -> int:
        return len(self._queues.get(queue, ()))

    def put(self, queue: str, message: RawMessage) -> None:
        with self.changed:
            self._queues.setdefault(queue, deque()).append(message)
            self.wake()

    def put_back(self, queue: str, message: RawMessage) -> None:
        with self.changed:
            self._queues.setdefault(queue, deque()).appendleft(message)
            self.wake()

    def get(self, queue: str) -> RawMessage:
        try:
            return self._queues[queue].popleft()
        except (KeyError, IndexError):
            raise Empty from None

    def purge(self, queue: str) -> int:
        with self.changed:
            messages = self._queues.get(queue, deque())
            removed = len(messages)
            messages.clear()
            return removed

    def delete(self, queue: str) -> None:
        with self.changed:
            self._queues.pop(queue, None)
            for exchange in self.state.exchanges.values():
                # kombu leaves the route behind; a fanout would then fill a queue that has no consumer.
                exchange["table"][:] = [route for route in exchange["table"] if route[2] != queue]


_brokers: dict[str, Broker] = {}
_brokers_lock = threading.Lock()


def broker_named(name: str) -> Broker:
    """The broker of `rival-inproc://name/`, created at its first use (names are case-insensitive)."""
    with _brokers_lock:
        return _brokers.setdefault(name.lower(), Broker())


def drop_namespace(name: str) -> None:
    """Drops a namespace with all its messages, when it has no connections any more."""
    with _brokers_lock:
        _brokers.pop(name.lower(), None)
