"""Publishes rows whose messages were probably lost, and applies the timeouts among them: one part of the keeper."""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

from rival_client.broker.doorbell import Doorbell
from rival_client.broker.message import EventMessage, StepMessage
from rival_client.model import statuses
from rival_client.model.starts.priorities import HIGH, NORMAL, SECOND_RISE, aged_level, rises
from rival_client.model.starts.queues import Route
from rival_client.model.timers import BACKOFF_MAX, backoff
from rival_workers.runtime.attempt.step_transitions import StepTransitions
from rival_workers.runtime.failpoints import failpoint
from rival_workers.runtime.keeper.failing_items import FailingItems
from rival_workers.store.interface import Store
from rival_workers.store.sweep_records import Due, DueEvent, SweepOptions

BATCH = 500
#: After this many publications (a quarter of an hour) a row is published again even if the queue has a backlog.
TRUST_LOOKS = 7
#: Seconds by which the clocks of publishing processes may differ. With more, messages that are still in the queue are
#: published again, and one of the two is stale.
CLOCK_MARGIN = 2.0
#: Seconds within which a live worker begins a message that it has taken from an empty queue.
_ON_ITS_WAY = 1.0

Waiting = TypeVar("Waiting", Due, DueEvent)


@dataclass
class Round:
    """The counts of one round. `still_queued`: rows that are due but whose messages are probably still in the queue."""

    scheduled: int = 0
    published: int = 0
    still_queued: int = 0
    timed_out: int = 0
    expired: int = 0
    taken_over: int = 0
    orphans: int = 0
    deleted: int = 0
    broker_lost_data: bool = False


class OverdueRows:
    def __init__(
        self,
        grace: float,
        store: Store,
        doorbell: Doorbell,
        transitions: StepTransitions,
        failing: FailingItems,
        stop: threading.Event,
    ) -> None:
        self._store, self._doorbell, self._transitions = store, doorbell, transitions
        self._failing, self._stop = failing, stop
        self._look = SweepOptions(BATCH, backoff=grace, backoff_max=BACKOFF_MAX)
        #: When an executor was found dead, or the database was unavailable; reset once the messages that were taken but
        #: not handled have been found.
        self.taken_until: float | None = None

    def make_all_due(self, within: float) -> None:
        """Make rows due that would be due within `within` seconds, in bounded batches."""
        while within > 0 and not self._stop.is_set() and self._store.make_all_due(within, BATCH) >= BATCH:
            pass

    def make_taken_due(self, now: float) -> None:
        """Make rows due whose messages were taken but not handled: those published before the oldest message in the
        queue. Repeated until all messages in the queue are younger than the death or the outage."""
        taken_until = self.taken_until
        if taken_until is None:
            return
        oldest = self._doorbell.oldest()
        waited = oldest + CLOCK_MARGIN if oldest > 0 else _ON_ITS_WAY
        self.make_all_due(self._look.backoff - waited)
        if waited <= now - taken_until and self.taken_until == taken_until:
            self.taken_until = None

    def publish_steps(self, done: Round) -> None:
        while not self._stop.is_set():
            found = self._store.due(self._look)
            for due in found:
                self._apply_limits(due, done)
            waiting = [due for due in found if not due.expired and due.status != statuses.RUNNING]
            waiting = [due for due in waiting if not self._has_expired(due, done)]
            waiting = self._risen(waiting) if self._doorbell.has_priorities else waiting
            messages = self._probably_lost(waiting, done.broker_lost_data)
            done.still_queued += len(waiting) - len(messages)
            done.published += len(messages)
            if messages:
                failpoint("after_due_commit")
                self._doorbell.publish([_message(due) for due in messages])
            if len(found) < BATCH:
                return

    def _apply_limits(self, due: Due, done: Round) -> None:
        """Apply the deadline of a run, or the timeout of an attempt."""
        if due.expired:
            expire = partial(self._transitions.expire, due.run_id, due.workflow, due.version)
            self._failing.attempt("expire", _named(due), expire)
            done.expired += 1
        elif due.status == statuses.RUNNING:
            self._failing.attempt("time out", _named(due), partial(self._transitions.time_out_due, due))
            done.timed_out += 1

    def publish_events(self, done: Round) -> None:
        """Publish events that no worker has delivered since they were sent."""
        while not self._stop.is_set():
            found = self._store.due_events(self._look)
            messages = self._probably_lost(found, done.broker_lost_data)
            done.still_queued += len(found) - len(messages)
            done.published += len(messages)
            if messages:
                self._doorbell.publish([EventMessage(event.id, event.topic) for event in messages])
            if len(found) < BATCH:
                return

    def _probably_lost(self, waiting: list[Waiting], broker_lost_data: bool) -> list[Waiting]:
        """The rows whose message is probably lost. While the queue has a backlog, an old message is not lost, and
        another copy would only make the queue longer. But queues are first in, first out: a message that was published
        well before the oldest one in the queue has left the queue.
        """
        if broker_lost_data:
            return waiting
        again = {due.route for due in waiting if not due.must_be_published}
        oldest = {route: self._doorbell.oldest(route) for route in again}
        return [due for due in waiting if due.must_be_published or self._is_lost(due, oldest[due.route])]

    def _is_lost(self, due: Due | DueEvent, oldest: float) -> bool:
        return oldest <= 0 or self._waited(due) > oldest + CLOCK_MARGIN or due.rings >= TRUST_LOOKS

    def _has_expired(self, due: Due, done: Round) -> bool:
        """True if the step has failed because it waited too long."""
        if not due.has_limit:
            return False
        expired = self._failing.attempt("expire", _named(due), partial(self._transitions.expire_due, due))
        done.timed_out += expired is True
        return expired is True

    def _risen(self, waiting: list[Due]) -> list[Due]:
        """The rows with their current levels: a level rises with the age of the row."""
        high = {
            Route(due.route.queue, HIGH) for due in waiting if due.route.level == NORMAL and due.rings == SECOND_RISE
        }
        crowded = {route.queue for route in high if self._doorbell.oldest(route) > 0}
        return [_aged(due, due.route.queue in crowded) for due in waiting]

    def _waited(self, due: Due | DueEvent) -> float:
        """Seconds since the row was published, at least: the backoff that has just ended."""
        return backoff(due.rings - 1, self._look.backoff, self._look.backoff_max)


def _aged(due: Due, high_waits: bool) -> Due:
    level = aged_level(due.route.level, due.rings, high_waits=high_waits)
    if level == due.route.level:
        return due
    rising = rises(due.route.level, due.rings, high_waits=high_waits)
    return replace(due, route=replace(due.route, level=level), rising=rising)


def _named(due: Due) -> tuple[str, ...]:
    return (due.run_id, due.path or "(start)")


def _message(due: Due) -> StepMessage:
    message = StepMessage(due.run_id, due.path, due.token, due.workflow, due.version, route=due.route)
    return replace(message, attempt=due.attempts + 1, lost=due.lost, countdown=max(0.0, due.due_in))
