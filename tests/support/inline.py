"""A worker without Celery for tests of the engine itself, on any store. Nothing happens unless a test does it by hand;
the lab of `rival_workers.testing` goes on by itself.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from sqlalchemy import text

from rival_client import Rival
from rival_client.broker.message import StepMessage
from rival_client.db import metadata
from rival_client.db.types import Timestamp
from rival_client.model.starts.queues import USUAL_ROUTE, Route
from rival_client.settings import Settings
from rival_workers.definition.define import define_workflow
from rival_workers.definition.registry import Registry
from rival_workers.definition.workflow import WorkflowDefinition
from rival_workers.runtime.attempt.coordinator import Verdict
from rival_workers.runtime.process import Process
from rival_workers.settings import WorkerSettings
from rival_workers.testing.broker import deliver
from rival_workers.testing.clock import Clock
from tests.support.histories import assert_histories_are_complete
from tests.support.shared_database import store_at, with_shared_pool

__all__ = ["Clock", "CollectingDoorbell", "Inline", "opened"]


class CollectingDoorbell:
    """Keeps published messages in order, until the test takes them."""

    def __init__(self) -> None:
        self.has_priorities = False
        self.messages: list[StepMessage] = []
        self.changed: list[str] = []
        self.down = False
        self.broker_lost_data = False
        self.waiting: int | None = 0
        #: Seconds for which the oldest message is said to have waited; 0: an empty queue.
        self.age = 0.0

    def publish(self, messages: Sequence[StepMessage], changed: Sequence[str] = ()) -> bool:
        if self.down:
            return False
        self.messages += messages
        self.changed += changed
        return True

    def take(self) -> list[StepMessage]:
        taken, self.messages = self.messages, []
        return taken

    def backlog(self, queue: str | None = None) -> int | None:
        return self.waiting

    def oldest(self, route: Route = USUAL_ROUTE) -> float:
        return self.age

    def answers(self) -> bool:
        return not self.down

    def check_epoch(self) -> bool:
        broker_lost_data, self.broker_lost_data = self.broker_lost_data, False
        return broker_lost_data

    def close(self) -> None:
        pass


class Inline:
    """A worker that does nothing by itself: `drain` delivers messages, `keeper.run_once` is one keeper's round."""

    def __init__(
        self, url: str, *, clock: Clock | None = None, doorbell: CollectingDoorbell | None = None, **settings: Any
    ) -> None:
        self.clock = clock
        self.registry = Registry()
        self.doorbell = doorbell or CollectingDoorbell()
        self.later: list[tuple[float, StepMessage]] = []
        self.settings = WorkerSettings(database_url=url, **settings)
        self.store = store_at(url, clock=clock or time.time, **self.settings.store_options)
        self.process = Process(self.settings, self.registry, "inline@test", store=self.store, doorbell=self.doorbell)
        self.coordinator, self.keeper = self.process.coordinator, self.process.keeper
        self.process.executor.start()
        self.rival = with_shared_pool(
            Rival(settings=Settings(database_url=url), database=self.store.database, doorbell=self.doorbell)
        )

    def define(self, name: str, *steps: Any, **options: Any) -> WorkflowDefinition:
        workflow = self.registry.add(define_workflow(name, steps, **options))
        self.process.register_workflows()
        return workflow

    def deliver(self, message: StepMessage) -> Verdict | None:
        """One message, as a worker would take it."""
        return deliver(self.coordinator, message)

    def drain(self) -> list[StepMessage]:
        """Deliver until no message is left; countdowns wait until the clock has come to them."""
        delivered: list[StepMessage] = []
        while ready := self._ready():
            for message in ready:
                delivered.append(message)
                self.deliver(message)
        return delivered

    def receive(self) -> float:
        """Take what has been published: countdowns begin now, which is returned."""
        now = self.clock() if self.clock else time.time()
        self.later += [(now + message.countdown, message) for message in self.doorbell.take()]
        return now

    def _ready(self) -> list[StepMessage]:
        now = self.receive()
        ready = [message for at, message in self.later if at <= now]
        self.later = [(at, message) for at, message in self.later if at > now]
        return ready

    def time_passes(self, seconds: float) -> None:
        """The clock goes on; where it cannot be set, everything that has happened is put back instead."""
        if self.clock is not None:
            self.clock.advance(seconds)
            return
        with self.store.database.transaction() as connection:
            for table in metadata.sorted_tables:
                stamps = [column.name for column in table.columns if isinstance(column.type, Timestamp)]
                changes = ", ".join(f"{name} = {name} - make_interval(secs => :seconds)" for name in stamps)
                if stamps:
                    connection.execute(text(f"UPDATE {table.name} SET {changes}"), {"seconds": seconds})
            # The only moment that is a number.
            connection.execute(text("UPDATE rival_gates SET next_start = next_start - :seconds"), {"seconds": seconds})

    def close(self) -> None:
        self.process.executor.stop()
        try:
            assert_histories_are_complete(self.store.database)
        finally:
            self.process.close()


@contextmanager
def opened(make: Callable[[], Inline]) -> Iterator[Inline]:
    inline = make()
    try:
        yield inline
    finally:
        inline.close()
