"""The statements that read events: those of a topic, one, and how many each topic has."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import Any, Literal

from sqlalchemy import Connection, case, func, select, tuple_

from rival_client.db.event_tables import deliveries, events
from rival_client.db.types import now
from rival_client.sql.events import Delivery

#: The part of its bound from which on a topic is nearly full.
NEARLY_FULL = 0.8


@dataclass(frozen=True)
class EventRecord:
    """An event as it is now. "sent": on its way; "kept": no step has waited for it yet."""

    event_id: str
    topic: str
    key: str | None
    run_id: str | None
    payload: Any
    delivery: Delivery
    status: Literal["sent", "kept", "consumed"]
    created_at: dt.datetime
    expires_at: dt.datetime


@dataclass(frozen=True)
class TopicCount:
    """How many events a topic has: on their way, kept, and how many it may keep (0: any number)."""

    topic: str
    sent: int
    kept: int
    bound: int

    @property
    def is_nearly_full(self) -> bool:
        return bool(self.bound) and self.kept >= self.bound * NEARLY_FULL


def count_by_topic(connection: Connection, bound: int, topic: str | None = None) -> list[TopicCount]:
    """Topics with undelivered events, the fullest first."""
    of = [func.sum(case((events.c.status == status, 1), else_=0)).label(status) for status in ("sent", "kept")]
    statement = select(events.c.topic, *of).where(events.c.status != "consumed", events.c.expires_at > now())
    if topic is not None:
        statement = statement.where(events.c.topic == topic)
    found = connection.execute(statement.group_by(events.c.topic)).all()
    counts = [TopicCount(row.topic, row.sent, row.kept, bound) for row in found]
    return sorted(counts, key=lambda one: (-one.kept, one.topic))


def list_events(
    connection: Connection,
    topic: str | None = None,
    limit: int = 50,
    *,
    behind: tuple[dt.datetime, str] | None = None,
) -> list[EventRecord]:
    """The newest first; `behind`: the time and the id of the last one of the page before."""
    statement = select(events).order_by(events.c.created_at.desc(), events.c.id.desc()).limit(limit)
    if topic is not None:
        statement = statement.where(events.c.topic == topic)
    if behind is not None:
        statement = statement.where(tuple_(events.c.created_at, events.c.id) < behind)
    return [event_of(row) for row in connection.execute(statement)]


def find_event(connection: Connection, event_id: str) -> EventRecord | None:
    row = connection.execute(select(events).where(events.c.id == event_id)).first()
    return None if row is None else event_of(row)


def event_of(row: Any) -> EventRecord:
    return EventRecord(
        row.id, row.topic, row.key, row.run_id, row.payload, row.delivery, row.status, row.created_at, row.expires_at
    )


def received_events(connection: Connection, run_id: str, limit: int) -> list[EventRecord]:
    """The events that a run has received and that still exist, in the order in which it has received them."""
    its = select(events).join(deliveries, deliveries.c.event_id == events.c.id).where(deliveries.c.run_id == run_id)
    found = connection.execute(its.order_by(deliveries.c.at, events.c.created_at, events.c.id).limit(limit))
    return [event_of(row) for row in found]
