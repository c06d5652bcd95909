"""Steps that wait for events, the events that have been delivered, and kept events that nearly match."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, func, select

from rival_client.db.event_tables import deliveries, events, waits
from rival_client.db.types import now
from rival_client.model.json_match import is_held
from rival_client.sql.events import EventRecord, event_of
from rival_client.sql.run_counts import CAP, Count

_COLUMNS = (waits.c.run_id, waits.c.path, waits.c.topic, waits.c.key, waits.c.filter, waits.c.created_at)
#: Kept events of a topic that are compared with a wait.
_COMPARED = 50


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


@dataclass(frozen=True)
class NearMiss:
    """A kept event that a wait does not take, and why: `key`, `run`, or `filter:/path` of a field."""

    event_id: str
    differs: tuple[str, ...]


def waits_of(connection: Connection, run_id: str, limit: int = 1000) -> dict[str, WaitRecord]:
    """Path -> the wait of that step."""
    found = connection.execute(select(*_COLUMNS).where(waits.c.run_id == run_id).limit(limit)).mappings()
    return {row["path"]: WaitRecord(**row) for row in found}


def list_waits(connection: Connection, topic: str, limit: int) -> list[WaitRecord]:
    """The steps that wait for a topic, the one that waits longest first among those of a key."""
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


def kept_events(connection: Connection, topic: str) -> list[EventRecord]:
    """The newest events of a topic that no step has received."""
    kept = (events.c.topic == topic, events.c.status != "consumed", events.c.expires_at > now())
    newest = select(events).where(*kept).order_by(events.c.created_at.desc()).limit(_COMPARED)
    return [event_of(row) for row in connection.execute(newest)]


def nearest(wait: WaitRecord, kept: Sequence[EventRecord]) -> NearMiss | None:
    """The kept event with the fewest differences; None without one."""
    misses = [NearMiss(one.event_id, tuple(_differences(wait, one))) for one in kept]
    return min(misses, key=lambda miss: len(miss.differs), default=None)


def _differences(wait: WaitRecord, event: EventRecord) -> list[str]:
    found = []
    if wait.key is not None and wait.key != event.key:
        found.append("key")
    if event.run_id is not None and event.run_id != wait.run_id:
        found.append("run")
    return found + [f"filter:{one}" for one in _missing(wait.filter, event.payload)]


def _missing(wanted: Any, payload: Any, path: str = "") -> list[str]:
    """Where the payload does not contain what the filter asks for."""
    if wanted is None or is_held(wanted, payload):
        return []
    if not isinstance(wanted, Mapping) or not isinstance(payload, Mapping):
        return [path]
    return [
        one
        for name, its in wanted.items()
        for one in (_missing(its, payload[name], f"{path}/{name}") if name in payload else [f"{path}/{name}"])
    ]
