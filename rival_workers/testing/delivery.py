"""A lab's broker: a doorbell that keeps what is rung, and hands it out when its time has come."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from rival_client.broker.message import AnyMessage, EventMessage
from rival_workers.runtime.attempt.coordinator import Coordinator, Verdict
from rival_workers.testing.clock import Clock


@dataclass(frozen=True)
class Letter:
    """A message, and when it is to be delivered."""

    at: float
    message: AnyMessage


class Mailbox:
    """In order, each message once. With `shuffle` in an order that only the seed knows, with `duplicate` each twice:
    neither may make a difference to a run.
    """

    def __init__(self, clock: Clock, *, shuffle: int | None = None, duplicate: bool = False) -> None:
        self._clock, self._copies = clock, 2 if duplicate else 1
        self._dice = None if shuffle is None else random.Random(shuffle)
        self._letters: list[Letter] = []

    # -- as a doorbell ------------------------------------------------------------------------------------

    def publish(self, messages: Sequence[AnyMessage], changed: Sequence[str] = ()) -> bool:
        now = self._clock()
        self._letters += [Letter(now + message.countdown, message) for message in messages for _ in range(self._copies)]
        return True

    def backlog(self) -> int | None:
        return sum(letter.at <= self._clock() for letter in self._letters)

    def oldest(self) -> float:
        now = self._clock()
        return max((now - letter.at for letter in self._letters if letter.at <= now), default=0.0)

    def check_epoch(self) -> bool:
        return False

    def close(self) -> None:
        pass

    # -- as a queue ---------------------------------------------------------------------------------------

    @property
    def next_at(self) -> float | None:
        """When the next message is to be delivered."""
        return min((letter.at for letter in self._letters), default=None)

    def take(self) -> AnyMessage | None:
        """The next message whose time has come."""
        ready = sorted((n for n, letter in enumerate(self._letters) if letter.at <= self._clock()), key=self._when)
        if not ready:
            return None
        return self._letters.pop(self._dice.choice(ready) if self._dice else ready[0]).message

    def _when(self, index: int) -> float:
        return self._letters[index].at

    def put_back(self, message: AnyMessage) -> None:
        """It is the next one again."""
        self._letters.insert(0, Letter(self._clock(), message))

    def lose(self) -> None:
        """The broker forgets everything."""
        self._letters.clear()


def deliver(coordinator: Coordinator, message: AnyMessage) -> Verdict | None:
    """One message, as a worker takes it."""
    if isinstance(message, EventMessage):
        coordinator.deliver(message.event_id)
        return None
    if message.path is None:
        coordinator.begin(message.run_id, message.token, message.workflow, message.version)
        return None
    return coordinator.attempt(message.run_id, message.path, message.token, message.workflow, message.version)
