"""Reading what steps have logged: by run, step and level, on from any entry."""

from __future__ import annotations

from sqlalchemy import ColumnElement, Connection, and_, or_, select

from rival_client.db.tables import logs
from rival_client.model.records import LogEntry
from rival_client.sql.run_reads import read_run

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
    wanted: list[ColumnElement[bool]] = [logs.c.run_id == run_id]
    if after is not None:
        wanted.append(logs.c.id > after)
    if step is not None:
        wanted.append(_belongs_to(step))
    if level is not None:
        wanted.append(logs.c.level.in_(_at_least(level)))
    found = connection.execute(select(logs).where(*wanted).order_by(logs.c.id).limit(limit)).all()
    if not found:
        read_run(connection, run_id)
    return [LogEntry(r.at, r.level, r.path, r.attempt, r.message, r.fields or {}, r.id) for r in found]


def _at_least(level: str) -> tuple[str, ...]:
    return LEVELS[LEVELS.index(level) :]


def _belongs_to(step: str) -> ColumnElement[bool]:
    """The step and all below it: a composite's steps, a repeated one's turns, the handlers."""
    path = logs.c.path
    below = (and_(path >= step + sign, path < step + chr(ord(sign) + 1)) for sign in "/[!")
    return or_(path == step, *below)
