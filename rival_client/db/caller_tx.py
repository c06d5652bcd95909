"""Joins a producer's own transaction: the insert is part of it, the publish follows its commit.

SQLAlchemy sessions report their commit; plain connections do not, so there the keeper starts the run (within a second).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import psycopg
from psycopg.rows import tuple_row
from sqlalchemy import Connection

from rival_client.db.caller_connections import (
    after_commit,
    as_query,
    callers_errors,
    is_session,
    register_functions_if_sqlite,
    session_of,
    unfit,
)
from rival_client.db.statement_runs import on_psycopg, on_sqlalchemy, run_statements
from rival_client.model.starts.starts import Start
from rival_client.sql import run_inserts
from rival_client.sql.event_inserts import INSERT_PSYCOPG as INSERT_EVENT_PSYCOPG
from rival_client.sql.event_inserts import insert_event, sent_unless_full
from rival_client.sql.events import Event
from rival_client.sql.shared_starts import Statements
from rival_client.sql.start_conflicts import refuse_conflicts

Publisher = Callable[[set[str]], None]
T = TypeVar("T")


def insert_in(connection: Any, start: Start, grace: float, publish: Publisher) -> set[str]:
    """Insert within the given open transaction; returns the ids that are new."""
    with callers_errors():
        return _insert_in(session_of(connection), start, grace, publish)


def _insert_in(connection: Any, start: Start, grace: float, publish: Publisher) -> set[str]:
    if is_session(connection):
        register_functions_if_sqlite(connection.connection())
        created = insert(connection.connection(), start, grace)
        after_commit(connection, lambda: publish(created))
        return created
    if isinstance(connection, Connection):
        register_functions_if_sqlite(connection)
        return insert(connection, start, 0)
    if isinstance(connection, psycopg.Connection):
        with connection.cursor(row_factory=tuple_row) as cursor:
            cursor.execute(as_query(run_inserts.INSERT_RUNS_PSYCOPG), start.all(0))
            created = {row[0] for row in cursor}
        run_statements(refuse_conflicts(start, created), on_psycopg(connection))
        return created
    raise unfit(connection)


def run_in(connection: Any, statements: Callable[[bool], Statements[T]], after: Callable[[T], None]) -> T:
    """Execute statements within the given open transaction. They are made for Postgres, or not. `after`: called after
    the commit of a session with their value."""
    with callers_errors():
        return _run_in(session_of(connection), statements, after)


def _run_in(connection: Any, statements: Callable[[bool], Statements[T]], after: Callable[[T], None]) -> T:
    if is_session(connection):
        value = _run_in(connection.connection(), statements, after)
        after_commit(connection, lambda: after(value))
        return value
    if isinstance(connection, Connection):
        register_functions_if_sqlite(connection)
        on_postgres = connection.dialect.name == "postgresql"
        return run_statements(statements(on_postgres), on_sqlalchemy(connection))
    if isinstance(connection, psycopg.Connection):
        return run_statements(statements(True), on_psycopg(connection))
    raise unfit(connection)


def send_in(connection: Any, event: Event, grace: float, publish: Callable[[], None]) -> bool:
    """The same for an event."""
    with callers_errors():
        return _send_in(session_of(connection), event, grace, publish)


def _send_in(connection: Any, event: Event, grace: float, publish: Callable[[], None]) -> bool:
    if is_session(connection):
        register_functions_if_sqlite(connection.connection())
        sent = insert_event(connection.connection(), event, grace)
        after_commit(connection, publish)
        return sent
    if isinstance(connection, Connection):
        register_functions_if_sqlite(connection)
        return insert_event(connection, event, 0)
    if isinstance(connection, psycopg.Connection):
        with connection.cursor(row_factory=tuple_row) as cursor:
            rows = cursor.execute(as_query(INSERT_EVENT_PSYCOPG), event.parameters(0)).fetchall()
        return sent_unless_full(event, rows[0][0])
    raise unfit(connection)


def insert(connection: Connection, start: Start, grace: float) -> set[str]:
    created = run_inserts.insert_runs(connection, start, grace)
    run_statements(refuse_conflicts(start, created), on_sqlalchemy(connection))
    return created
