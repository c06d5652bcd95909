"""Bounded reads of what waits for workers and at limits: the backlog of each queue, the tickets of each limit."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, Subquery, Table, func, select

from rival_client.db.limit_tables import gates, tickets
from rival_client.db.run_tables import runs, steps
from rival_client.db.types import now
from rival_client.model import statuses
from rival_client.model.starts.queues import DEFAULT_QUEUE
from rival_client.model.why.why_facts import ABANDONED, QueueFacts
from rival_client.sql.reads.capped_counts import CAP, Count
from rival_client.sql.reads.executors import ExecutorRecord

#: Rows with a time to be looked at that are read: one more than are counted.
_DUE = CAP + 1
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


def waiting_by_queue(connection: Connection) -> list[QueueBacklog]:
    """Runs and steps that may start now, up to a cap, by queue. Not those of paused runs, those that are parked, and
    runs that start at a later time or wait for a limit."""
    found: dict[str | None, list[tuple[int, dt.datetime]]] = {}
    for some in (_waiting_runs(), _waiting_steps()):
        part = some.subquery()
        counted = select(part.c.queue, func.count(), func.min(part.c.since)).group_by(part.c.queue)
        for queue, number, first in connection.execute(counted):
            found.setdefault(queue, []).append((number, first))
    return [_backlog(queue, found[queue]) for queue in sorted(found, key=lambda name: name or "")]


def _waiting_runs() -> Select[Any]:
    since = func.coalesce(runs.c.due_at, runs.c.created_at).label("since")
    due = first_due(runs, runs.c.id, runs.c.status, runs.c.parked, runs.c.paused_at, runs.c.queue, since)
    its_ticket = (tickets.c.run_id == due.c.id, tickets.c.path == "", tickets.c.granted_at.is_(None))
    is_free = (due.c.paused_at.is_(None), due.c.parked.is_(None), ~select(tickets.c.run_id).where(*its_ticket).exists())
    return select(due.c.queue, due.c.since).where(due.c.status == statuses.PENDING, due.c.since <= now(), *is_free)


def _waiting_steps() -> Select[Any]:
    since = func.coalesce(steps.c.due_at, steps.c.created_at).label("since")
    due = first_due(steps, steps.c.run_id, steps.c.status, steps.c.parked, steps.c.queue, since)
    goes_on = (runs.c.id == due.c.run_id, runs.c.paused_at.is_(None))
    is_free = (due.c.parked.is_(None), select(runs.c.id).where(*goes_on).exists())
    return select(due.c.queue, due.c.since).where(due.c.status == statuses.PENDING, *is_free)


def _backlog(queue: str | None, parts: Sequence[tuple[int, dt.datetime]]) -> QueueBacklog:
    counts = (Count(min(number, CAP), number > CAP) for number, _ in parts)
    return QueueBacklog(queue, Count.together(counts), min(first for _, first in parts))


def queues_of(one: ExecutorRecord) -> frozenset[str]:
    """One that has stored no queues serves the fleet's own queue."""
    return frozenset(one.queues or (DEFAULT_QUEUE,))


def queue_facts(connection: Connection, alive: Sequence[ExecutorRecord]) -> dict[str, QueueFacts]:
    """Queue -> what waits in it, and the live executors that serve it."""
    found = {
        one.queue or DEFAULT_QUEUE: QueueFacts(one.waiting.count, one.waiting.more, one.oldest)
        for one in waiting_by_queue(connection)
    }
    for queue in frozenset[str]().union(*map(queues_of, alive)):
        serve = [one for one in alive if queue in queues_of(one)]
        slots = [one.slots for one in serve if one.slots is not None]
        found[queue] = replace(
            found.get(queue, QueueFacts()),
            workers=len({one.worker for one in serve}),
            slots=sum(slots) if len(slots) == len(serve) else None,
            busy=sum(one.busy or 0 for one in serve),
            abandoned=tuple(line for one in serve for line in _abandoned(one)),
        )
    return found


def _abandoned(one: ExecutorRecord) -> list[str]:
    return [f"{one.worker}: {line}" for line in (one.problem or "").splitlines() if line.startswith(ABANDONED)]


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
