"""What the fleet does and what waits for it, each read bounded: running attempts, queues, parked and overdue rows."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Connection, Subquery, Table, func, select

from rival_client.db.limit_tables import gates, tickets
from rival_client.db.log_tables import history
from rival_client.db.run_tables import in_status, runs, steps
from rival_client.db.types import after
from rival_client.model import statuses
from rival_client.model.history_entries import TAKEN_OVER
from rival_client.sql.run_counts import CAP, Count

#: A row that was due this long ago has been looked at by no keeper.
OVERDUE = 60.0
#: Running runs that are looked at for the attempts of executors.
_RUNS = 500
#: Rows with a time to be looked at that are read.
_DUE = CAP
#: Tickets that are read.
_TICKETS = 5 * CAP


@dataclass(frozen=True)
class Parked:
    """Runs that no live worker can continue, by the version that they need."""

    workflow: str
    version: str
    why: str
    runs: Count


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


def running_attempts(connection: Connection, *, of_oldest: bool = False) -> list[dict[str, Any]]:
    """Of the newest or of the oldest running runs: what runs on which executor, the longest first. Two statements: each
    goes through its index."""
    order = (runs.c.created_at, runs.c.id) if of_oldest else (runs.c.created_at.desc(), runs.c.id.desc())
    some = select(runs.c.id, runs.c.workflow).where(in_status(statuses.RUNNING)).order_by(*order).limit(_RUNS)
    workflows = {row.id: row.workflow for row in connection.execute(some)}
    if not workflows:
        return []
    wanted = (steps.c.run_id.in_(list(workflows)), steps.c.status == statuses.RUNNING)
    columns = (steps.c.run_id, steps.c.path, steps.c.executor_id, steps.c.started_at)
    found = connection.execute(select(*columns).where(*wanted).limit(CAP)).mappings()
    attempts = [{**row, "workflow": workflows[row["run_id"]]} for row in found]
    return sorted(attempts, key=lambda one: one["started_at"])


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
    due = _first_due(steps, steps.c.run_id, steps.c.status, steps.c.parked, steps.c.queue, since)
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


def _first_due(table: Table, *columns: ColumnElement[Any]) -> Subquery:
    """The rows that keepers look at next: a part of an index, however many others wait for their time."""
    return select(*columns).where(table.c.ring_at.is_not(None)).order_by(table.c.ring_at).limit(_DUE).subquery()


def overdue(connection: Connection) -> Count:
    """Rows that no keeper has looked at when they were due."""
    counts = []
    for table in (runs, steps):
        is_late = table.c.ring_at < after(-OVERDUE)
        late = select(table.c.ring_at).where(is_late).order_by(table.c.ring_at).limit(CAP + 1).subquery()
        number = connection.scalar(select(func.count()).select_from(late)) or 0
        counts.append(Count(min(number, CAP), number > CAP))
    return Count.together(counts)


def parked_runs(connection: Connection) -> list[Parked]:
    """Parked rows have a time to be looked at again: that is the work of a partial index."""
    first = _first_due(runs, runs.c.id, runs.c.parked)
    due = _first_due(steps, steps.c.run_id.label("id"), steps.c.parked)
    parked = [
        row for some in (first, due) for row in connection.execute(select(*some.c).where(some.c.parked.is_not(None)))
    ]
    versions = _versions(connection, [row.id for row in parked])
    found: dict[tuple[str, str], tuple[str, int]] = {}
    for row in parked:
        why, number = found.get(versions[row.id], (row.parked, 0))
        found[versions[row.id]] = (why, number + 1)
    return [Parked(*key, why, Count(number, number >= CAP)) for key, (why, number) in found.items()]


def _versions(connection: Connection, run_ids: Sequence[str]) -> dict[str, tuple[str, str]]:
    if not run_ids:
        return {}
    found = connection.execute(select(runs.c.id, runs.c.workflow, runs.c.version).where(runs.c.id.in_(run_ids)))
    return {row.id: (row.workflow, row.version) for row in found}


def takeovers(connection: Connection, since: dt.datetime) -> Count:
    """Attempts that were taken over lately, among the newest entries of all histories."""
    newest = select(history.c.what, history.c.at).order_by(history.c.id.desc()).limit(20 * CAP).subquery()
    wanted = (newest.c.what == TAKEN_OVER, newest.c.at >= since)
    number = connection.scalar(select(func.count()).select_from(newest).where(*wanted)) or 0
    return Count(min(number, CAP), number > CAP)
