"""Joins a producer's own transaction: the insert is part of it, the publish follows its commit.

SQLAlchemy sessions report their commit; plain connections do not, so there the keeper starts the run (within a second).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import psycopg
from sqlalchemy import Connection
from sqlalchemy import event as sqlalchemy_event
from sqlalchemy.exc import SQLAlchemyError

from rival_client.db.database import teach_sqlite
from rival_client.db.database_errors import translated
from rival_client.errors import ConfigurationError
from rival_client.model.payload import Json, load
from rival_client.model.records import WorkflowInfo
from rival_client.sql import runs
from rival_client.sql.events import INSERT_PSYCOPG as INSERT_EVENT_PSYCOPG
from rival_client.sql.events import Event, insert_event, sent_unless_full

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

Publisher = Callable[[set[str]], None]

#: The key under which a session keeps what to publish after its commit.
_WAITING = "rival_after_commit"


def insert_in(
    connection: Any, workflow: WorkflowInfo, inputs: Mapping[str, Json], grace: float, publish: Publisher
) -> set[str]:
    """Insert within the given open transaction; returns the ids that are new."""
    with _its_errors():
        return _insert_in(_session_of(connection), workflow, inputs, grace, publish)


def _insert_in(
    connection: Any, workflow: WorkflowInfo, inputs: Mapping[str, Json], grace: float, publish: Publisher
) -> set[str]:
    if _is_session(connection):
        _bring_the_clock(connection.connection())
        created = insert(connection.connection(), workflow, inputs, grace)
        _after_commit(connection, lambda: publish(created))
        return created
    if isinstance(connection, Connection):
        _bring_the_clock(connection)
        return insert(connection, workflow, inputs, 0)
    if isinstance(connection, psycopg.Connection):
        rows = connection.execute(_sql(runs.INSERT_RUNS_PSYCOPG), runs.insert_parameters(workflow, inputs, 0))
        created = {row[0] for row in rows}
        if missing := _missing(inputs, created):
            found = connection.execute(_sql(runs.SELECT_EXISTING_PSYCOPG), {"ids": missing}).fetchall()
            runs.refuse_conflicts(workflow.name, inputs, map(_read, found))
        return created
    raise _unfit(connection)


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


async def insert_in_async(
    connection: Any, workflow: WorkflowInfo, inputs: Mapping[str, Json], grace: float, publish: Publisher
) -> set[str]:
    with _its_errors():
        return await _insert_in_async(connection, workflow, inputs, grace, publish)


async def _insert_in_async(
    connection: Any, workflow: WorkflowInfo, inputs: Mapping[str, Json], grace: float, publish: Publisher
) -> set[str]:
    if _is_async_sqlalchemy(connection):
        created: set[str] = await connection.run_sync(insert_in, workflow, inputs, grace, publish)
        return created
    if isinstance(connection, psycopg.AsyncConnection):
        parameters = runs.insert_parameters(workflow, inputs, 0)
        cursor = await connection.execute(_sql(runs.INSERT_RUNS_PSYCOPG), parameters)
        created = {row[0] for row in await cursor.fetchall()}
        if missing := _missing(inputs, created):
            cursor = await connection.execute(_sql(runs.SELECT_EXISTING_PSYCOPG), {"ids": missing})
            runs.refuse_conflicts(workflow.name, inputs, map(_read, await cursor.fetchall()))
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


def insert(connection: Connection, workflow: WorkflowInfo, inputs: Mapping[str, Json], grace: float) -> set[str]:
    created = runs.insert_runs(connection, workflow, inputs, grace)
    if missing := _missing(inputs, created):
        runs.refuse_conflicts(workflow.name, inputs, runs.existing_inputs(connection, missing))
    return created


def _bring_the_clock(connection: Connection) -> None:
    """A producer's own SQLite connection does not know ours yet."""
    if connection.dialect.name == "sqlite":
        teach_sqlite(connection.connection.driver_connection)


def _missing(inputs: Mapping[str, Json], created: set[str]) -> list[str]:
    return [run_id for run_id in inputs if run_id not in created]


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
