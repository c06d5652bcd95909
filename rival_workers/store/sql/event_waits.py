"""Begins the wait of a step: the step gets the first sent event that matches and is already stored, or a row in
`waits`. Finds the waits that an event is for. The caller holds the locks of the topics.
"""

from __future__ import annotations

import datetime as dt
import heapq
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, Select, delete, func, insert, or_, select, true, tuple_, update

from rival_client.db.event_tables import deliveries, events, waits
from rival_client.db.types import now
from rival_client.model import history_entries as entries
from rival_client.model.json_match import contains
from rival_client.sql.history import HistoryWriter
from rival_workers.engine.effects import WaitFor
from rival_workers.store.sql.guards import chosen
from rival_workers.store.sql.locks import need_topic

_BATCH = 100
#: Waits read per batch; more than one is needed only if filters exclude some.
_WAITS_AT_ONCE = 10


@dataclass(frozen=True)
class Waiting:
    """A step that waits for events."""

    run_id: str
    path: str
    token: int = 0


def sending_order(event: Row[Any]) -> tuple[dt.datetime, str]:
    return event.created_at, event.id


def fitting_events(
    connection: Connection, waiting: Waiting, waits_for: Iterable[WaitFor], alive_at: dt.datetime | None = None
) -> Iterator[Row[Any]]:
    """Stored events that match one of the waits, over all topics, in the order in which they were sent. `alive_at`: the
    time at which they must not have expired; None: now."""
    of_each = [_fitting(connection, waiting, wait, alive_at) for wait in waits_for]
    return heapq.merge(*of_each, key=sending_order)


def _fitting(
    connection: Connection, waiting: Waiting, wait: WaitFor, alive_at: dt.datetime | None
) -> Iterator[Row[Any]]:
    # For a key, the index orders the events of each status separately; for a whole topic, those of both statuses
    # together.
    parts: tuple[tuple[str, ...], ...] = (("kept", "sent"),) if wait.key is None else (("kept",), ("sent",))
    there = [_there_for(connection, waiting, wait, statuses, alive_at) for statuses in parts]
    for event in heapq.merge(*there, key=sending_order):
        if wait.where is None or contains(event.payload, wait.where):
            yield event


def _there_for(
    connection: Connection, waiting: Waiting, wait: WaitFor, statuses: Sequence[str], alive_at: dt.datetime | None
) -> Iterator[Row[Any]]:
    """Yields the events of one index scan, one batch at a time."""
    last: Row[Any] | None = None
    while True:
        found = connection.execute(_open_events(waiting, wait, statuses, last, alive_at)).all()
        yield from found
        if len(found) < _BATCH:
            return
        last = found[-1]


def _open_events(
    waiting: Waiting, wait: WaitFor, statuses: Sequence[str], last: Row[Any] | None, alive_at: dt.datetime | None
) -> Select[Any]:
    had = select(deliveries.c.event_id).where(
        deliveries.c.event_id == events.c.id, deliveries.c.run_id == waiting.run_id
    )
    order = (events.c.created_at, events.c.id)
    return (
        select(events)
        .where(
            events.c.topic == wait.topic,
            # Matches the predicate of the partial index that orders the whole topic.
            events.c.status != "consumed" if wait.key is None else events.c.status.in_(statuses),
            events.c.expires_at > now() if alive_at is None else events.c.expires_at >= alive_at,
            or_(events.c.run_id.is_(None), events.c.run_id == waiting.run_id),
            true() if wait.key is None else events.c.key == wait.key,
            true() if last is None else tuple_(*order) > (last.created_at, last.id),
            ~had.exists(),
        )
        .order_by(*order)
        .limit(_BATCH)
    )


def begin_wait(
    connection: Connection, waiting: Waiting, waits_for: Sequence[WaitFor], writer: HistoryWriter
) -> dict[str, Any] | None:
    """Assign the first sent event that is stored and matches one of these waits to the step. Returns None if there is
    none, and enters the step as waiting. Raises TopicNeeded if another transaction holds the lock of a topic: the
    caller must wait for that lock first."""
    for wait in waits_for:
        need_topic(connection, wait)
    event = next(fitting_events(connection, waiting, waits_for), None)
    if event is not None:
        return hand_over(connection, event, waiting, writer)
    same = {"run_id": waiting.run_id, "path": waiting.path, "token": waiting.token, "created_at": now()}
    rows = [{"topic": wait.topic, "key": wait.key, "filter": wait.where} for wait in waits_for]
    connection.execute(insert(waits).values(same), rows)
    return None


def hand_over(connection: Connection, event: Row[Any], waiting: Waiting, writer: HistoryWriter) -> dict[str, Any]:
    if event.delivery == "one":
        connection.execute(
            update(events)
            .where(events.c.id == event.id, events.c.status != "consumed")
            .values(status="consumed", ring_at=None)
        )
    connection.execute(insert(deliveries).values(event_id=event.id, run_id=waiting.run_id, path=waiting.path, at=now()))
    writer.add(entries.EVENT, waiting.path, by=by_event(event.id), topic=event.topic, key=event.key)
    return {"id": event.id, "topic": event.topic, "key": event.key, "payload": event.payload}


def by_event(event_id: str) -> str:
    return f"event {event_id}"


def next_wait(connection: Connection, event: Row[Any], last: Row[Any] | None) -> Row[Any] | None:
    """The first wait after `last` that the event may be for. None: no further step waits."""
    while True:
        found = connection.execute(_waits_for(event, last)).all()
        for row in found:
            if row.filter is None or contains(event.payload, row.filter):
                return row
        if len(found) < _WAITS_AT_ONCE:
            kept = update(events).where(events.c.id == event.id, events.c.status == "sent")
            connection.execute(kept.values(status="kept", ring_at=None))
            return None
        last = found[-1]


def _waits_for(event: Row[Any], last: Row[Any] | None) -> Select[Any]:
    """Waits that the event may be for, the oldest first, one batch. A wait that began after the event expired does not
    get it, even if the delivery is late."""
    fits = waits.c.key.is_(None) if event.key is None else or_(waits.c.key.is_(None), waits.c.key == event.key)
    whose = true() if event.run_id is None else waits.c.run_id == event.run_id
    had = select(deliveries.c.event_id).where(deliveries.c.event_id == event.id, deliveries.c.run_id == waits.c.run_id)
    order = (waits.c.created_at, waits.c.run_id, waits.c.path)
    further = true() if last is None else tuple_(*order) > (last.created_at, last.run_id, last.path)
    same = waits.alias()
    topics = select(func.count()).where(same.c.run_id == waits.c.run_id, same.c.path == waits.c.path)
    return (
        select(waits, topics.scalar_subquery().label("topics"))
        .where(
            waits.c.topic == event.topic, waits.c.created_at <= event.expires_at, fits, whose, further, ~had.exists()
        )
        .order_by(*order)
        .limit(_WAITS_AT_ONCE)
    )


def delete_deliveries(connection: Connection, which: ColumnElement[bool]) -> None:
    """Delete in key order: the deliveries of an expired event and those of a deleted run overlap (deadlock)."""
    key = (deliveries.c.event_id, deliveries.c.run_id)
    in_order = select(*key).where(which).order_by(*key).with_for_update()
    connection.execute(delete(deliveries).where(tuple_(*key).in_(chosen(in_order))))
