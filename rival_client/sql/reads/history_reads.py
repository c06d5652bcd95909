"""The statements that read the history of a run: all of it, its newest part, one entry."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from sqlalchemy import Connection, Integer, Select, and_, cast, func, select

from rival_client.db.log_tables import history
from rival_client.db.run_tables import steps
from rival_client.model.history_entries import COMPLETED, SKIPPED
from rival_client.model.run_entries import HistoryEntry
from rival_client.sql.reads.history_columns import ENTRY, as_entry, slim_detail, without_values


def whole_entries(connection: Connection) -> Select[Any]:
    """All entries with their values, also with results that are in the rows of their steps."""
    if connection.dialect.name != "postgresql":
        return select(*ENTRY, history.c.run_id, history.c.detail)
    named = func.json_extract_path_text(history.c.detail, "result_token")
    path = func.coalesce(func.json_extract_path_text(history.c.detail, "result_of"), history.c.path)
    is_named = and_(
        history.c.what.in_((COMPLETED, SKIPPED)),
        steps.c.run_id == history.c.run_id,
        steps.c.path == path,
        steps.c.execution_token == cast(named, Integer),
    )
    columns = (*ENTRY, history.c.run_id, history.c.detail, steps.c.result.label("named_result"))
    return select(*columns).select_from(history.outerjoin(steps, is_named))


def read_history(
    connection: Connection,
    run_id: str,
    *,
    after: int | None = None,
    until: int | None = None,
    limit: int | None = None,
    slim: bool = False,
) -> list[HistoryEntry]:
    """In their order, behind `after` and up to `until`. With `slim`, without values of users: a page of entries is
    small whatever they hold."""
    entries = select(*ENTRY, slim_detail(connection)) if slim else whole_entries(connection)
    statement = entries.where(history.c.run_id == run_id).order_by(history.c.id).limit(limit)
    if after is not None:
        statement = statement.where(history.c.id > after)
    if until is not None:
        statement = statement.where(history.c.id <= until)
    return _entries(connection, statement, slim)


def read_newest(
    connection: Connection, run_id: str, *, before: int | None = None, limit: int, path: str | None = None
) -> list[HistoryEntry]:
    """The newest entries first, without values of users; `path`: those of one step."""
    wanted = [history.c.run_id == run_id]
    wanted += [history.c.id < before] if before is not None else []
    wanted += [history.c.path == path] if path is not None else []
    statement = select(*ENTRY, slim_detail(connection)).where(*wanted).order_by(history.c.id.desc()).limit(limit)
    return _entries(connection, statement, slim=True)


def _entries(connection: Connection, statement: Select[Any], slim: bool) -> list[HistoryEntry]:
    entries = [as_entry(row) for row in connection.execute(statement)]
    return [replace(entry, detail=without_values(entry.detail)) for entry in entries] if slim else entries


def newest_ids(connection: Connection, run_id: str, limit: int) -> list[int]:
    """The ids of the newest entries. Ids do not become visible in their order: one of them is not enough to say that
    nothing has changed."""
    wanted = select(history.c.id).where(history.c.run_id == run_id).order_by(history.c.id.desc()).limit(limit)
    return list(connection.scalars(wanted))


def read_entry(connection: Connection, run_id: str, entry_id: int) -> HistoryEntry | None:
    wanted = (history.c.run_id == run_id, history.c.id == entry_id)
    return next(iter(_entries(connection, whole_entries(connection).where(*wanted), slim=False)), None)
