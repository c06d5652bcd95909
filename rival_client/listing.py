"""Which runs there are: the list, by what they are and hold, page by page. It takes an open connection."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import ColumnElement, Connection, FromClause, Select, and_, func, select, tuple_, type_coerce, union_all
from sqlalchemy.dialects.postgresql import JSONB

from rival_client.payload import serialise
from rival_client.reading import run_of
from rival_client.records import Run
from rival_client.tables import runs


def list_runs(
    connection: Connection,
    *,
    workflow: str | None = None,
    status: str | Sequence[str] | None = None,
    since: dt.datetime | None = None,
    until: dt.datetime | None = None,
    input: Mapping[str, Any] | None = None,
    before: Run | None = None,
    limit: int = 50,
) -> list[Run]:
    """The newest runs first; `before` is the last run of the page before this one."""
    statement = _newest(select(runs), runs, limit)
    if workflow is not None:
        statement = statement.where(runs.c.workflow == workflow)
    if since is not None:
        statement = statement.where(runs.c.created_at >= since)
    if until is not None:
        statement = statement.where(runs.c.created_at < until)
    if before is not None:
        statement = statement.where(tuple_(runs.c.created_at, runs.c.id) < (before.created_at, before.run_id))
    if input:
        statement = _with_input(statement, connection, input)
    if status is not None:
        statement = _with_status(statement, (status,) if isinstance(status, str) else tuple(status), limit)
    return [run_of(row) for row in connection.execute(statement).mappings()]


def _newest(statement: Select[Any], table: FromClause, limit: int) -> Select[Any]:
    return statement.order_by(table.c.created_at.desc(), table.c.id.desc()).limit(limit)


def _with_status(statement: Select[Any], wanted: tuple[str, ...], limit: int) -> Select[Any]:
    """Of several statuses, the newest of each and then of all: the index has each of them in order, but not their
    mixture."""
    parts = [statement.where(runs.c.status == status).subquery() for status in wanted]
    if len(parts) == 1:
        return statement.where(runs.c.status == wanted[0])
    together = union_all(*(select(part) for part in parts)).subquery()
    return _newest(select(together), together, limit)


def _with_input(statement: Select[Any], connection: Connection, wanted: Mapping[str, Any]) -> Select[Any]:
    if connection.dialect.name == "postgresql":
        return statement.where(type_coerce(runs.c.input, JSONB).contains(dict(wanted)))
    return statement.where(and_(*(_sqlite_holds(f'$."{key}"', value) for key, value in wanted.items())))


def _sqlite_holds(path: str, value: Any) -> ColumnElement[bool]:
    """Kind and value, since SQLite gives true and 1, null and nothing as the same value."""
    wanted = serialise(value)
    return and_(
        func.json_type(runs.c.input, path) == func.json_type(wanted),
        func.json_extract(runs.c.input, path).is_not_distinct_from(func.json_extract(wanted, "$")),
    )
