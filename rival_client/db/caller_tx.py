"""Joins a producer's own transaction: the insert is part of it, the publish follows its commit.

SQLAlchemy sessions report their commit; plain connections do not, so there the keeper starts the run (within a second).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import psycopg
from sqlalchemy import Connection
from sqlalchemy import event as sqlalchemy_event
from sqlalchemy.exc import SQLAlchemyError

from rival_client.db.database import teach_sqlite
from rival_client.db.database_errors import translated
from rival_client.db.statement_runs import on_psycopg, on_sqlalchemy, run_statements, run_statements_async
from rival_client.errors import ConfigurationError
from rival_client.model.payload import load
from rival_client.model.starts import Start
from rival_client.sql import run_inserts
from rival_client.sql.event_inserts import INSERT_PSYCOPG as INSERT_EVENT_PSYCOPG
from rival_client.sql.event_inserts import insert_event, sent_unless_full
from rival_client.sql.events import Event
from rival_client.sql.shared_starts import Statements

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

Publisher = Callable[[set[str]], None]
T = TypeVar("T")

#: The key under which a session keeps what to publish after its commit.
_WAITING = "rival_after_commit"


def insert_in(connection: Any, start: Start, grace: float, publish: Publisher) -> set[str]:
    """Insert within the given open transaction; returns the ids that are new."""
    with _its_errors():
        return _insert_in(_session_of(connection), start, grace, publish)


def _insert_in(connection: Any, start: Start, grace: float, publish: Publisher) -> set[str]:
    if _is_session(connection):
        _bring_the_clock(connection.connection())
        created = insert(connection.connection(), start, grace)
        _after_commit(connection, lambda: publish(created))
        return created
    if isinstance(connection, Connection):
        _bring_the_clock(connection)
        return insert(connection, start, 0)
    if isinstance(connection, psycopg.Connection):
        created = {row[0] for row in connection.execute(_sql(run_inserts.INSERT_RUNS_PSYCOPG), start.all(0))}
        if missing := start.missing(created):
            found = connection.execute(_sql(run_inserts.SELECT_EXISTING_PSYCOPG), {"ids": missing}).fetchall()
            run_inserts.refuse_conflicts(start, map(_read, found))
        return created
    raise _unfit(connection)


def run_in(connection: Any, statements: Callable[[bool], Statements[T]], after: Callable[[T], None]) -> T:
    """Execute statements within the given open transaction. They are made for Postgres, or not. `after`: called after
    the commit of a session with their value."""
    with _its_errors():
        return _run_in(_session_of(connection), statements, after)


def _run_in(connection: Any, statements: Callable[[bool], Statements[T]], after: Callable[[T], None]) -> T:
    if _is_session(connection):
        value = _run_in(connection.connection(), statements, after)
        _after_commit(connection, lambda: after(value))
        return value
    if isinstance(connection, Connection):
        _bring_the_clock(connection)
        on_postgres = connection.dialect.name == "postgresql"
        return run_statements(statements(on_postgres), on_sqlalchemy(connection))
    if isinstance(connection, psycopg.Connection):
        return run_statements(statements(True), on_psycopg(connection))
    raise _unfit(connection)


async def run_in_async(connection: Any, statements: Callable[[bool], Statements[T]], after: Callable[[T], None]) -> T:
    with _its_errors():
        if _is_async_sqlalchemy(connection):
            value: T = await connection.run_sync(run_in, statements, after)
            return value
        if isinstance(connection, psycopg.AsyncConnection):
            return await run_statements_async(statements(True), connection)
        raise _unfit(connection)


def reports_commit(connection: Any) -> bool:
    """Whether something can be done after the commit of this connection: of a session."""
    aio = sys.modules.get("sqlalchemy.ext.asyncio")
    is_async_session = aio is not None and isinstance(connection, aio.AsyncSession | aio.async_scoped_session)
    return is_async_session or _is_session(_session_of(connection))


def send_in(connection: Any, event: Event, grace: float, publish: Callable[[], None]) -> bool:
    """The same for an event."""
    with _its_errors():
        return _send_in(_session_of(connection), event, grace, publish)


def _send_in(connection: Any, event: Event, grace: float, publish: Callable[[], None]) -> bool:
    if _is_session(connection):
        _bring_the_clock(connection.connection())
        sent = insert_event(connection.connection(), event, grace)
        _after_commit(connection, publish)
        return sent
    if isinstance(connection, Connection):
        _bring_the_clock(connection)
        return insert_event(connection, event, 0)
    if isinstance(connection, psycopg.Connection):
        rows = connection.execute(_sql(INSERT_EVENT_PSYCOPG), event.parameters(0)).fetchall()
        return sent_unless_full(event, rows[0][0])
    raise _unfit(connection)


async def send_in_async(connection: Any, event: Event, grace: float, publish: Callable[[], None]) -> bool:
    with _its_errors():
        return await _send_in_async(connection, event, grace, publish)


async def _send_in_async(connection: Any, event: Event, grace: float, publish: Callable[[], None]) -> bool:
    if _is_async_sqlalchemy(connection):
        sent: bool = await connection.run_sync(send_in, event, grace, publish)
        return sent
    if isinstance(connection, psycopg.AsyncConnection):
        cursor = await connection.execute(_sql(INSERT_EVENT_PSYCOPG), event.parameters(0))
        rows = await cursor.fetchall()
        return sent_unless_full(event, rows[0][0])
    raise _unfit(connection)


async def insert_in_async(connection: Any, start: Start, grace: float, publish: Publisher) -> set[str]:
    with _its_errors():
        return await _insert_in_async(connection, start, grace, publish)


async def _insert_in_async(connection: Any, start: Start, grace: float, publish: Publisher) -> set[str]:
    if _is_async_sqlalchemy(connection):
        created: set[str] = await connection.run_sync(insert_in, start, grace, publish)
        return created
    if isinstance(connection, psycopg.AsyncConnection):
        cursor = await connection.execute(_sql(run_inserts.INSERT_RUNS_PSYCOPG), start.all(0))
        created = {row[0] for row in await cursor.fetchall()}
        if missing := start.missing(created):
            cursor = await connection.execute(_sql(run_inserts.SELECT_EXISTING_PSYCOPG), {"ids": missing})
            run_inserts.refuse_conflicts(start, map(_read, await cursor.fetchall()))
        return created
    raise _unfit(connection)


def _session_of(connection: Any) -> Any:
    """A `scoped_session` is called to give the session of this thread."""
    orm = sys.modules.get("sqlalchemy.orm")
    return connection() if orm is not None and isinstance(connection, orm.scoped_session) else connection


def _is_session(connection: Any) -> bool:
    # A caller that has a session has imported the ORM; other callers do not need it.
    orm = sys.modules.get("sqlalchemy.orm")
    return orm is not None and isinstance(connection, orm.Session)


def _is_async_sqlalchemy(connection: Any) -> bool:
    # Importing these needs greenlet, which few producers have.
    aio = sys.modules.get("sqlalchemy.ext.asyncio")
    return aio is not None and isinstance(connection, aio.AsyncConnection | aio.AsyncSession | aio.async_scoped_session)


@contextmanager
def _its_errors() -> Iterator[None]:
    """The producer's own connection may be closed, within a failed transaction, or that of another database."""
    try:
        yield
    except (SQLAlchemyError, psycopg.Error) as error:
        raise translated(None, error) from error


def _sql(text: str) -> Any:
    return text  # psycopg types queries as LiteralString; ours is one, built once at import


def _read(row: Any) -> tuple[str, str, Any]:
    run_id, workflow, its_input = row
    return run_id, workflow, load(its_input)


def insert(connection: Connection, start: Start, grace: float) -> set[str]:
    created = run_inserts.insert_runs(connection, start, grace)
    if missing := start.missing(created):
        run_inserts.refuse_conflicts(start, run_inserts.existing_inputs(connection, missing))
    return created


def _bring_the_clock(connection: Connection) -> None:
    """A producer's own SQLite connection does not know ours yet."""
    if connection.dialect.name == "sqlite":
        teach_sqlite(connection.connection.driver_connection)


def _after_commit(session: Session, publish: Callable[[], None]) -> None:
    """Once, at the outermost commit; a rollback drops it."""
    if _WAITING not in session.info:
        session.info[_WAITING] = []
        # Once per session and for good: SQLAlchemy does not bear listeners that remove themselves while it calls them.
        sqlalchemy_event.listen(session, "after_commit", _committed)
        sqlalchemy_event.listen(session, "after_rollback", _rolled_back)
    session.info[_WAITING].append(publish)


def _committed(session: Session) -> None:
    if not session.in_nested_transaction():
        publishers, session.info[_WAITING] = session.info[_WAITING], []
        for publish in publishers:
            publish()


def _rolled_back(session: Session) -> None:
    # A savepoint that is rolled back may not contain the run: a message for a run that does not exist is harmless.
    if not session.in_nested_transaction():
        session.info[_WAITING] = []


def _unfit(connection: Any) -> ConfigurationError:
    return ConfigurationError(
        f"connection= takes a SQLAlchemy Session or Connection, or a psycopg Connection, "
        f"not {type(connection).__qualname__} (AsyncRival: their async forms)."
    )
