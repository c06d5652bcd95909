"""What waits for workers and at limits, each read bounded: the backlog of each queue, the tickets of each limit."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Connection, Subquery, Table, func, select

from rival_client.db.limit_tables import gates, tickets
from rival_client.db.run_tables import in_status, runs, steps
from rival_client.model import statuses
from rival_client.sql.reads.capped_counts import CAP, Count

#: Rows with a time to be looked at that are read.
_DUE = CAP
#: Tickets that are read.
_TICKETS = 5 * CAP


@dataclass(frozen=True)
class QueueBacklog:
    """What waits for a worker that serves this queue. `queue` None: the fleet's own."""

    queue: str | None
    waiting: Count
    oldest: dt.datetime


@dataclass(frozen=True)
class LimitQueue:
    """What waits at one key of a limit. Of a rate, `used` counts those that may start soon."""

    name: str
    key: str
    max: int
    used: int
    waiting: Count
    oldest: dt.datetime


def waiting_for_worker(connection: Connection) -> tuple[Count, dt.datetime | None]:
    """Runs that have not begun and steps that are due, up to a cap, and since when the oldest waits."""
    found = waiting_by_queue(connection)
    return Count.together(one.waiting for one in found), min((one.oldest for one in found), default=None)


def waiting_by_queue(connection: Connection) -> list[QueueBacklog]:
    """Runs that have not begun and steps that are due, up to a cap, by queue, without those of paused runs. A run that
    starts at a later time, or waits for a limit, counts as well."""
    goes_on = runs.c.paused_at.is_(None)
    begun = select(runs.c.queue, runs.c.created_at.label("since")).where(in_status(statuses.PENDING), goes_on)
    since = func.coalesce(steps.c.due_at, steps.c.created_at).label("since")
    due = first_due(steps, steps.c.run_id, steps.c.status, steps.c.parked, steps.c.queue, since)
    of_run = select(runs.c.id).where(runs.c.id == due.c.run_id, goes_on).exists()
    is_waiting = (due.c.status == statuses.PENDING, due.c.parked.is_(None), of_run)
    found: dict[str | None, list[tuple[int, dt.datetime]]] = {}
    for some in (begun, select(due.c.queue, due.c.since).where(*is_waiting)):
        part = some.limit(CAP + 1).subquery()
        counted = select(part.c.queue, func.count(), func.min(part.c.since)).group_by(part.c.queue)
        for queue, number, first in connection.execute(counted):
            found.setdefault(queue, []).append((number, first))
    return [_backlog(queue, found[queue]) for queue in sorted(found, key=lambda name: name or "")]


def _backlog(queue: str | None, parts: Sequence[tuple[int, dt.datetime]]) -> QueueBacklog:
    counts = (Count(min(number, CAP), number > CAP) for number, _ in parts)
    return QueueBacklog(queue, Count.together(counts), min(first for _, first in parts))


def waiting_at_limits(connection: Connection) -> list[LimitQueue]:
    """The keys of limits at which steps or runs wait, the longest wait first. Of very many tickets, the first ones."""
    in_order = (tickets.c.gate, tickets.c.rank, tickets.c.run_id, tickets.c.path)
    some = select(tickets.c.gate, tickets.c.created_at).where(tickets.c.granted_at.is_(None)).order_by(*in_order)
    part = some.limit(_TICKETS).subquery()
    counted = select(part.c.gate, func.count(), func.min(part.c.created_at)).group_by(part.c.gate)
    waiting = {row[0]: (row[1], row[2]) for row in connection.execute(counted)}
    if not waiting:
        return []
    columns = (gates.c.id, gates.c.name, gates.c.key, gates.c.max, gates.c.used)
    found = connection.execute(select(*columns).where(gates.c.id.in_(list(waiting))))
    queues = [_limit_queue(row, *waiting[row.id]) for row in found]
    return sorted(queues, key=lambda one: one.oldest)


def _limit_queue(row: Any, number: int, oldest: dt.datetime) -> LimitQueue:
    return LimitQueue(row.name, row.key, row.max, row.used, Count(min(number, CAP), number > CAP), oldest)


def first_due(table: Table, *columns: ColumnElement[Any]) -> Subquery:
    """The rows that keepers look at next: a part of an index, however many others wait for their time."""
    return select(*columns).where(table.c.ring_at.is_not(None)).order_by(table.c.ring_at).limit(_DUE).subquery()
