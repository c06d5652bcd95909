"""Reads the steps that wait for events, and the deliveries of events."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, func, select

from rival_client.db.event_tables import deliveries, waits
from rival_client.sql.reads.capped_counts import CAP, Count

_COLUMNS = (waits.c.run_id, waits.c.path, waits.c.topic, waits.c.key, waits.c.filter, waits.c.created_at)


@dataclass(frozen=True)
class WaitRecord:
    """A step that waits for an event. `filter`: what the payload must contain."""

    run_id: str
    path: str
    topic: str
    key: str | None
    filter: Any
    created_at: dt.datetime


@dataclass(frozen=True)
class DeliveryRecord:
    """The step that has received an event."""

    event_id: str
    run_id: str
    path: str
    at: dt.datetime


def waits_of(connection: Connection, run_id: str, limit: int = 1000) -> dict[str, WaitRecord]:
    """Path -> the wait of that step."""
    found = connection.execute(select(*_COLUMNS).where(waits.c.run_id == run_id).limit(limit)).mappings()
    return {row["path"]: WaitRecord(**row) for row in found}


def list_waits(connection: Connection, topic: str, limit: int) -> list[WaitRecord]:
    """The steps that wait for a topic, by key; within a key, the longest wait first."""
    order = (waits.c.key, waits.c.created_at)
    found = connection.execute(select(*_COLUMNS).where(waits.c.topic == topic).order_by(*order).limit(limit))
    return [WaitRecord(**row) for row in found.mappings()]


def count_waits(connection: Connection, limit: int = 10 * CAP) -> dict[str, Count]:
    """Topic -> how many steps wait for it, of the first `limit` waits."""
    some = select(waits.c.topic).order_by(waits.c.topic).limit(limit).subquery()
    found = connection.execute(select(some.c.topic, func.count().label("n")).group_by(some.c.topic)).all()
    more = sum(row.n for row in found) >= limit
    return {row.topic: Count(row.n, more) for row in found}


def list_deliveries(connection: Connection, event_id: str, limit: int) -> list[DeliveryRecord]:
    """Which steps have received an event."""
    its = select(deliveries).where(deliveries.c.event_id == event_id).order_by(deliveries.c.at).limit(limit)
    return [DeliveryRecord(**row) for row in connection.execute(its).mappings()]
