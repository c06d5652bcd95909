"""What has changed lately: the statements that a program polls which shows runs live. One of each serves any number of
viewers.

Ids of history entries do not become visible in their order: two transactions can commit in the other order. So each
read begins at a floor, the newest entry of ten seconds ago, and the program ignores what it knows. Ids of log lines are
exact.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import BigInteger, Connection, RowMapping, Text, and_, func, or_, select, true, values
from sqlalchemy import column as plain_column

from rival_client.db.log_tables import history, logs
from rival_client.db.run_tables import runs, steps
from rival_client.model.run_entries import HistoryEntry, LogEntry
from rival_client.sql.history_columns import as_entry, entry_columns, without_values
from rival_client.sql.run_filter import RunFilter
from rival_client.sql.run_search import newest_runs, window_start

#: Runs that are looked at for newer ones, where no index finds them.
LOOKED_AT = 500
#: Entries that are looked at for the floor, and of one run at once.
_NEWEST, OF_RUN = 2000, 2000


def history_floor(connection: Connection, before: dt.datetime) -> int:
    """The newest entry of all histories that is older than `before`; of very many, one that is a little younger."""
    newest = select(history.c.id, history.c.at).order_by(history.c.id.desc()).limit(_NEWEST).subquery()
    old = func.max(newest.c.id).filter(newest.c.at < before)
    found, lowest = connection.execute(select(old, func.min(newest.c.id)).select_from(newest)).one()
    return int(found if found is not None else (lowest or 1) - 1)


def entries_since(connection: Connection, since: Mapping[str, int]) -> list[tuple[str, HistoryEntry]]:
    """(run, entry) of the entries of each run above its id, without values of users."""
    if not since:
        return []
    if connection.dialect.name == "postgresql":
        wanted = values(plain_column("id", Text), plain_column("since", BigInteger), name="wanted")
        wanted = wanted.data([(run_id, int(floor)) for run_id, floor in since.items()])
        of_run = and_(history.c.run_id == wanted.c.id, history.c.id > wanted.c.since)
        each = select(history.c.run_id, *entry_columns(connection)).where(of_run).correlate(wanted)
        part = each.order_by(history.c.id).limit(OF_RUN).lateral()
        statement = select(part).select_from(wanted.join(part, true())).order_by(part.c.id)
    else:
        each = select(history.c.run_id, *entry_columns(connection)).order_by(history.c.id)
        statement = each.where(or_(*(_above(run_id, floor) for run_id, floor in since.items())))
    return [(row.run_id, _slim(row)) for row in connection.execute(statement)]


def _above(run_id: str, floor: int) -> Any:
    return and_(history.c.run_id == run_id, history.c.id > floor)


def _slim(row: Any) -> HistoryEntry:
    entry = as_entry(row)
    return HistoryEntry(entry.at, entry.what, entry.path, without_values(entry.detail), entry.by, entry.id)


def last_log_ids(connection: Connection, run_ids: Sequence[str]) -> dict[str, int]:
    statement = select(logs.c.run_id, func.max(logs.c.id).label("last")).where(logs.c.run_id.in_(run_ids))
    found = {row.run_id: row.last for row in connection.execute(statement.group_by(logs.c.run_id))}
    return {run_id: found.get(run_id, 0) for run_id in run_ids}


def logs_since(connection: Connection, since: Mapping[str, int], limit: int) -> list[tuple[str, LogEntry]]:
    """(run, line) of what was logged after these lines, the oldest first."""
    if not since:
        return []
    after = (and_(logs.c.run_id == run_id, logs.c.id > last) for run_id, last in since.items())
    found = connection.execute(select(logs).where(or_(*after)).order_by(logs.c.id).limit(limit))
    return [(r.run_id, LogEntry(r.at, r.level, r.path, r.attempt, r.message, r.fields or {}, r.id)) for r in found]


def progress_of(connection: Connection, run_ids: Sequence[str], limit: int) -> Sequence[RowMapping]:
    """Open steps that count items or report progress."""
    counts = or_(steps.c.total.is_not(None), steps.c.progress.is_not(None))
    wanted = (steps.c.run_id.in_(run_ids), steps.c.completed_at.is_(None), counts)
    names = ("run_id", "path", "total", "opened", "remaining", "progress", "heartbeat_at")
    return connection.execute(select(*(steps.c[name] for name in names)).where(*wanted).limit(limit)).mappings().all()


def newest_ids(connection: Connection, chosen: RunFilter, limit: int) -> list[str]:
    """The ids of the newest runs that a filter chooses; of runs without an index for it, among the newest ones."""
    searched = window_start(connection, chosen, None, LOOKED_AT)
    chosen = chosen if searched is None else replace(chosen, since=searched)
    found = connection.execute(newest_runs(connection, (runs.c.created_at, runs.c.id), chosen, None, limit))
    return [row.id for row in found]
