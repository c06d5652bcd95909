"""Delivers events to waiting steps, in portable SQL. The begin of a wait and a delivery take the same lock, so one of
the two sees the other: an event sent just before, during or after the begin of the wait is never missed.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import Connection, Row, delete, select, update

from rival_client.db.event_tables import deliveries, events, waits
from rival_client.db.guards import step_can
from rival_client.db.locks import share_run
from rival_client.db.run_tables import steps
from rival_client.db.types import now
from rival_client.model.kinds import FLOW_WAIT
from rival_client.sql.checkpoint_ends import Arrival, end_checkpoint
from rival_client.sql.history import HistoryWriter
from rival_client.sql.wake import ReadyStep, wake_step
from rival_workers.engine.effects import WaitFor
from rival_workers.store.claim_records import ClaimBy, Delivered
from rival_workers.store.sql.event_waits import (
    Waiting,
    by_event,
    delete_deliveries,
    fitting_events,
    hand_over,
    next_wait,
    sending_order,
)
from rival_workers.store.sql.guards import any_is_past, backed_off, chosen
from rival_workers.store.sql.locks import lock_topics
from rival_workers.store.sql.part import StorePart
from rival_workers.store.sweep_records import DueEvent, SweepOptions

_BATCH = 100
_ANY_DUE = select(any_is_past(events.c.ring_at))


class TopicsNeeded(Exception):
    """A delivery must lock more topics. Topics are locked in one order, so the delivery starts again."""

    def __init__(self, waits_for: set[WaitFor]) -> None:
        super().__init__(", ".join(sorted(wait.topic for wait in waits_for)))
        self.waits_for = waits_for


class EventsSql(StorePart):
    def deliver_event(self, event_id: str, claim: ClaimBy | None = None) -> Delivered:
        """Make the steps ready that wait for the event. If no step waits, the event is kept until it expires. Safe to
        repeat.

        Of several undelivered events with the same topic and key, the oldest is delivered, not the one that the message
        names. Each event has a message, so all are delivered in the order in which they were sent.
        """
        # An event for many runs uses one transaction per run, so that no transaction needs the locks of two runs.
        ready: list[ReadyStep] = []
        delivery = _Delivery(event_id)
        while not delivery.is_over:
            try:
                with self.database.transaction() as connection:
                    one = self._deliver_to_next(connection, delivery)
            except TopicsNeeded as needed:
                delivery = replace(delivery, also=delivery.also | needed.waits_for)
            else:
                delivery, woken_now = one
                ready += [woken_now] if woken_now else []
        return Delivered(tuple(ready))

    def _deliver_to_next(self, connection: Connection, delivery: _Delivery) -> tuple[_Delivery, ReadyStep | None]:
        """One transaction of a delivery. A wait for several topics, or for any key, gets the event that was sent first,
        which may be another event whose own message has not arrived yet."""
        event, locked = _to_deliver(connection, delivery)
        row = None if event is None else next_wait(connection, event, delivery.last)
        if event is None or row is None:
            return replace(delivery, is_over=True), None
        first = _first_sent(connection, event, row, locked) or event
        one = self._wake_if_waiting(connection, first, row)
        given = one is not None and first is event and event.delivery == "one"
        return replace(delivery, event_id=event.id, last=row, is_over=given), one

    def _wake_if_waiting(self, connection: Connection, event: Row[Any], row: Row[Any]) -> ReadyStep | None:
        share_run(connection, row.run_id)
        kind = _kind_that_takes(connection, row)
        return None if kind is None else self._wake(connection, event, row, kind)

    def _wake(self, connection: Connection, event: Row[Any], row: Row[Any], kind: str) -> ReadyStep | None:
        """Give the event to the wait. Returns None if no message is needed: a flow that its timeout has resumed already
        runs and reads the event."""
        writer, by = HistoryWriter(connection, row.run_id), by_event(event.id)
        delivered = hand_over(connection, event, Waiting(row.run_id, row.path), writer)
        writer.write()
        if kind == FLOW_WAIT:
            return end_checkpoint(connection, row.run_id, row.path, self.ring_grace, Arrival(by, delivered))
        return wake_step(connection, row.run_id, row.path, self.ring_grace, by, item=delivered)

    def due_events(self, options: SweepOptions) -> list[DueEvent]:
        """Undelivered events that are due. Each is postponed by a backoff at once, like any due row."""
        due = (
            select(events.c.id)
            .where(events.c.ring_at <= now())
            .order_by(events.c.ring_at)
            .limit(options.limit)
            .with_for_update(skip_locked=True)
        )
        with self.database.autocommit() as connection:
            # As with runs and steps, most rounds find nothing, so the check must be cheap.
            if not connection.scalar(_ANY_DUE):
                return []
        with self.database.transaction() as connection:
            found = connection.execute(
                update(events)
                .where(events.c.id.in_(chosen(due)))
                .values(ring_at=backed_off(events.c.rings, options), rings=events.c.rings + 1)
                .returning(events.c.id, events.c.topic, events.c.rings - 1)
            )
            return [DueEvent(*row) for row in found]

    def delete_expired_events(self, limit: int) -> int:
        """Delete kept and consumed events that have expired. An undelivered one stays: a step may have begun to wait
        for it before it expired.
        """
        old = (
            select(events.c.id)
            .where(events.c.expires_at < now(), events.c.status != "sent")
            .order_by(events.c.expires_at)
            .limit(limit)
            .with_for_update(skip_locked=True)
        )
        with self.database.transaction() as connection:
            ids = list(connection.scalars(old))
            delete_deliveries(connection, deliveries.c.event_id.in_(ids))
            connection.execute(delete(events).where(events.c.id.in_(ids)))
            return len(ids)


def _kind_that_takes(connection: Connection, row: Row[Any]) -> str | None:
    """Lock the waiting step under the token of its wait. None: a timeout or a cancel has moved the step on, so it takes
    no event."""
    at = (steps.c.run_id == row.run_id, steps.c.path == row.path)
    its_step = select(steps.c.kind).where(*at, steps.c.execution_token == row.token, step_can("wake_step"))
    kind: str | None = connection.scalar(its_step.with_for_update())
    its_own = (waits.c.run_id == row.run_id, waits.c.path == row.path, waits.c.token == row.token)
    connection.execute(delete(waits).where(*its_own))
    return kind


@dataclass(frozen=True)
class _Delivery:
    """The progress of a delivery."""

    #: The event that the message names; after the first transaction, the event that is being delivered.
    event_id: str
    #: The last wait that was examined.
    last: Row[Any] | None = None
    #: Further topics and keys to lock, because a wait that was found is for more than this event's topic and key.
    also: frozenset[WaitFor] = frozenset()
    is_over: bool = False


def _to_deliver(connection: Connection, delivery: _Delivery) -> tuple[Row[Any] | None, Collection[WaitFor]]:
    """The oldest undelivered event with the topic and key that the message names, or the event of the previous
    transaction; and the waits whose topics are locked."""
    asked = connection.execute(select(events.c.topic, events.c.key).where(events.c.id == delivery.event_id)).first()
    if asked is None:
        return None, ()
    locked = lock_topics(connection, {WaitFor(asked.topic, asked.key), *delivery.also})
    its_key = events.c.key.is_(None) if asked.key is None else events.c.key == asked.key
    of_key = (events.c.topic == asked.topic, its_key)
    which = of_key if delivery.last is None else (events.c.id == delivery.event_id,)
    oldest = select(events).where(*which, events.c.status == "sent").order_by(events.c.created_at, events.c.id)
    return connection.execute(oldest.limit(1).with_for_update()).first(), locked


def _first_sent(connection: Connection, event: Row[Any], row: Row[Any], locked: Collection[WaitFor]) -> Row[Any] | None:
    """The earlier event that this wait must get instead of the given one. Raises TopicsNeeded if more locks are needed
    to decide: only a transaction that has locked a topic may take its events."""
    if row.key is not None and row.topics == 1:
        return None
    its_own = select(waits).where(waits.c.run_id == row.run_id, waits.c.path == row.path)
    waits_for = [WaitFor(one.topic, one.key, one.filter) for one in connection.execute(its_own)]
    needed = {WaitFor(one.topic, one.key) for one in waits_for}
    if not needed <= {*locked}:
        raise TopicsNeeded(needed)
    waiting = Waiting(row.run_id, row.path)
    first = next(fitting_events(connection, waiting, waits_for, alive_at=row.created_at), None)
    return first if first is not None and sending_order(first) < sending_order(event) else None
