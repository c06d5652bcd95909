"""Reads log entries of steps: by run, step and level, starting after any entry."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, Select, and_, func, or_, select

from rival_client.db.log_tables import logs
from rival_client.model.run_entries import LogEntry
from rival_client.sql.reads.run_reads import read_run

LEVELS = ("debug", "info", "warning", "error")
DEFAULT_LIMIT = 1000


def read_logs(
    connection: Connection,
    run_id: str,
    *,
    step: str | None = None,
    level: str | None = None,
    after: int | None = None,
    limit: int = DEFAULT_LIMIT,
) -> list[LogEntry]:
    """The oldest first. RunNotFound when there is neither an entry nor a run."""
    lines = _lines(run_id, step, level)
    if after is not None:
        lines = lines.where(logs.c.id > after)
    found = connection.execute(lines.order_by(logs.c.id).limit(limit)).all()
    if not found:
        read_run(connection, run_id)
    return [_entry(row) for row in found]


def read_last_logs(
    connection: Connection, run_id: str, *, step: str | None = None, level: str | None = None, limit: int
) -> list[LogEntry]:
    """The newest entries, the oldest of them first."""
    newest = _lines(run_id, step, level).order_by(logs.c.id.desc()).limit(limit)
    return [_entry(row) for row in reversed(connection.execute(newest).all())]


def _lines(run_id: str, step: str | None, level: str | None) -> Select[Any]:
    wanted: list[ColumnElement[bool]] = [logs.c.run_id == run_id]
    if step is not None:
        wanted.append(_belongs_to(step))
    if level is not None:
        wanted.append(logs.c.level.in_(_at_least(level)))
    return select(logs).where(*wanted)


def _entry(row: Row[Any]) -> LogEntry:
    return LogEntry(row.at, row.level, row.path, row.attempt, row.message, row.fields or {}, row.id)


def _at_least(level: str) -> tuple[str, ...]:
    return LEVELS[LEVELS.index(level) :]


def _belongs_to(step: str) -> ColumnElement[bool]:
    """The step and all below it: a composite's steps, its items and iterations, the handlers."""
    path = logs.c.path
    below = (and_(path >= step + sign, path < step + chr(ord(sign) + 1)) for sign in "/[!")
    return or_(path == step, *below)


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
