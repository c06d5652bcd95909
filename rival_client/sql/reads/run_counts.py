"""Counts runs cheaply: open and failed runs up to a cap, all runs as an estimate. Completed runs are never counted."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, replace

from sqlalchemy import Connection, func, select, text, tuple_

from rival_client.db.run_tables import in_status, runs
from rival_client.model import statuses
from rival_client.model.statuses import RUN_ACTIVE
from rival_client.sql.reads.capped_counts import Count, capped
from rival_client.sql.reads.run_filter import RunFilter
from rival_client.sql.reads.run_search import WINDOW, newest_runs, window_start

#: Up to so many runs are counted.
EXACT = 10_000
#: So many newer runs are counted.
NEWER = 50


@dataclass(frozen=True)
class RunCounts:
    open: Count
    by_status: dict[str, Count]
    paused: Count
    failed: Count
    #: Of more than `EXACT` runs, `more` is set and the number is an estimate.
    all: Count


def count_open(connection: Connection) -> dict[str, Count]:
    """Status -> how many runs that have not ended."""
    return {status: capped(connection, in_status(status)) for status in RUN_ACTIVE}


def count_runs(connection: Connection, failed_since: dt.datetime) -> RunCounts:
    by_status = count_open(connection)
    paused = capped(connection, runs.c.paused_at.is_not(None), runs.c.completed_at.is_(None))
    failed = capped(connection, in_status(statuses.FAILED), runs.c.created_at >= failed_since)
    return RunCounts(Count.together(by_status.values()), by_status, paused, failed, _all(connection))


def _all(connection: Connection) -> Count:
    estimate = _estimate(connection)
    if estimate > 2 * EXACT:
        return Count(estimate, more=True)
    few = capped(connection, cap=EXACT)
    return Count(max(EXACT, estimate), more=True) if few.more else few


def _estimate(connection: Connection) -> int:
    """Without reading the table: from the statistics of Postgres, or the number of rows ever inserted on SQLite."""
    if connection.dialect.name != "postgresql":
        return int(connection.scalar(text("SELECT max(rowid) FROM rival_runs")) or 0)
    return int(connection.scalar(text("SELECT reltuples FROM pg_class WHERE oid = to_regclass('rival_runs')")) or 0)


def count_chosen(connection: Connection, chosen: RunFilter, cap: int) -> Count:
    """Runs that a filter chooses, up to a cap."""
    some = newest_runs(connection, (runs.c.id, runs.c.created_at), chosen, None, cap + 1).subquery()
    found = connection.scalar(select(func.count()).select_from(some)) or 0
    return Count(min(found, cap), found > cap)


def count_newer(connection: Connection, chosen: RunFilter, created_at: dt.datetime, run_id: str) -> Count:
    """Runs that a filter chooses and that are newer than that run, up to a page."""
    columns = (runs.c.created_at, runs.c.id)
    searched = window_start(connection, chosen, None, WINDOW)
    since = created_at if searched is None else max(created_at, searched)
    newest = newest_runs(connection, columns, replace(chosen, since=since), None, NEWER + 2).subquery()
    is_newer = tuple_(newest.c.created_at, newest.c.id) > (created_at, run_id)
    found = connection.scalar(select(func.count()).select_from(newest).where(is_newer)) or 0
    return Count(min(found, NEWER), found > NEWER)
