"""Reads the state of the fleet, each read bounded: running attempts, takeovers, parked and overdue rows."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, func, select

from rival_client.db.log_tables import history
from rival_client.db.run_tables import in_status, runs, steps
from rival_client.db.types import after
from rival_client.model import statuses
from rival_client.model.history_entries import TAKEN_OVER
from rival_client.sql.reads.capped_counts import CAP, Count
from rival_client.sql.reads.queue_reads import first_due

#: A row that was due this long ago has been looked at by no keeper.
OVERDUE = 60.0
#: Running runs that are looked at for the attempts of executors.
_RUNS = 500


@dataclass(frozen=True)
class Parked:
    """Runs that no live worker can continue, by the version that they need."""

    workflow: str
    version: str
    why: str
    runs: Count


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
    first = first_due(runs, runs.c.id, runs.c.parked)
    due = first_due(steps, steps.c.run_id.label("id"), steps.c.parked)
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
