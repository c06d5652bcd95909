"""The broker of a lab: a doorbell that keeps published messages in memory, and returns each when its time has come."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from rival_client.broker.message import AnyMessage, EventMessage
from rival_client.model.starts.queues import USUAL_ROUTE, Route
from rival_workers.runtime.attempt.coordinator import Coordinator, Verdict
from rival_workers.testing.clock import Clock


@dataclass(frozen=True)
class QueuedMessage:
    """A message and the time of its delivery."""

    at: float
    message: AnyMessage


class LabBroker:
    """Delivers in order, each message once. `shuffle` is the seed of a random order, `duplicate` delivers each message
    twice; neither may change the result of a run.
    """

    has_priorities = False

    def __init__(self, clock: Clock, *, shuffle: int | None = None, duplicate: bool = False) -> None:
        self._clock, self._copies = clock, 2 if duplicate else 1
        self._random = None if shuffle is None else random.Random(shuffle)
        self._messages: list[QueuedMessage] = []

    # -- as a doorbell ------------------------------------------------------------------------------------

    def publish(self, messages: Sequence[AnyMessage], changed: Sequence[str] = ()) -> bool:
        now = self._clock()
        for message in messages:
            self._messages += [QueuedMessage(now + message.countdown, message)] * self._copies
        return True

    def backlog(self, queue: str | None = None) -> int | None:
        return sum(queued.at <= self._clock() for queued in self._messages)

    def oldest(self, route: Route = USUAL_ROUTE) -> float:
        now = self._clock()
        return max((now - queued.at for queued in self._messages if queued.at <= now), default=0.0)

    def answers(self) -> bool:
        return True

    def check_epoch(self) -> bool:
        return False

    def close(self) -> None:
        pass

    # -- as a queue ---------------------------------------------------------------------------------------

    @property
    def next_at(self) -> float | None:
        """The time of the next delivery."""
        return min((queued.at for queued in self._messages), default=None)

    def take(self) -> AnyMessage | None:
        """The next message whose time has come."""
        ready = sorted((n for n, queued in enumerate(self._messages) if queued.at <= self._clock()), key=self._when)
        if not ready:
            return None
        return self._messages.pop(self._random.choice(ready) if self._random else ready[0]).message

    def _when(self, index: int) -> float:
        return self._messages[index].at

    def put_back(self, message: AnyMessage) -> None:
        """Makes it the next message again."""
        self._messages.insert(0, QueuedMessage(self._clock(), message))

    def lose(self) -> None:
        """Broker data loss: drops all messages."""
        self._messages.clear()


def deliver(coordinator: Coordinator, message: AnyMessage) -> Verdict | None:
    """Processes one message like a worker does."""
    if isinstance(message, EventMessage):
        coordinator.deliver(message.event_id)
        return None
    if message.path is None:
        coordinator.begin(message.run_id, message.token, message.workflow, message.version)
        return None
    return coordinator.attempt(message.run_id, message.path, message.token, message.workflow, message.version)
