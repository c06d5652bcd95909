"""The events that a step may get, in the order in which they were sent. Only reads: the caller holds the locks."""

from __future__ import annotations

import datetime as dt
import heapq
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Row, Select, or_, select, true, tuple_

from rival_client.db.tables import deliveries, events, now
from rival_client.model.json_match import contains
from rival_workers.engine.effects import WaitFor

_BATCH = 100


@dataclass(frozen=True)
class Waiting:
    """A step that waits."""

    run_id: str
    path: str
    token: int = 0


def sending_order(event: Row[Any]) -> tuple[dt.datetime, str]:
    return event.created_at, event.id


def fitting_events(
    connection: Connection, waiting: Waiting, waits_for: Iterable[WaitFor], alive_at: dt.datetime | None = None
) -> Iterator[Row[Any]]:
    """Those that fit one of the waits, of all topics. `alive_at`: when they must not have expired; None: now."""
    of_each = [_fitting(connection, waiting, wait, alive_at) for wait in waits_for]
    return heapq.merge(*of_each, key=sending_order)


def _fitting(
    connection: Connection, waiting: Waiting, wait: WaitFor, alive_at: dt.datetime | None
) -> Iterator[Row[Any]]:
    # An index has the events of a key in their order for each status; of a whole topic, for both.
    parts: tuple[tuple[str, ...], ...] = (("kept", "sent"),) if wait.key is None else (("kept",), ("sent",))
    there = [_there_for(connection, waiting, wait, statuses, alive_at) for statuses in parts]
    for event in heapq.merge(*there, key=sending_order):
        if wait.where is None or contains(event.payload, wait.where):
            yield event


def _there_for(
    connection: Connection, waiting: Waiting, wait: WaitFor, statuses: Sequence[str], alive_at: dt.datetime | None
) -> Iterator[Row[Any]]:
    """A batch at a time."""
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
            # As the index says it that has the whole topic in order.
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
