"""A producer's own connection: its kind, its errors, and publishing after its commit if it reports one."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import psycopg
from sqlalchemy import Connection
from sqlalchemy import event as sqlalchemy_event
from sqlalchemy.exc import SQLAlchemyError

from rival_client.db.database_errors import translated
from rival_client.db.sqlite import register_functions
from rival_client.errors import InvalidArgument

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

#: The key under which a session keeps what to publish after its commit.
_WAITING = "rival_after_commit"


def reports_commit(connection: Any) -> bool:
    """Whether something can be done after the commit of this connection: of a session."""
    aio = sys.modules.get("sqlalchemy.ext.asyncio")
    is_async_session = aio is not None and isinstance(connection, aio.AsyncSession | aio.async_scoped_session)
    return is_async_session or is_session(session_of(connection))


def session_of(connection: Any) -> Any:
    """A `scoped_session` is called to give the session of this thread."""
    orm = sys.modules.get("sqlalchemy.orm")
    return connection() if orm is not None and isinstance(connection, orm.scoped_session) else connection


def is_session(connection: Any) -> bool:
    # A caller that has a session has imported the ORM; other callers do not need it.
    orm = sys.modules.get("sqlalchemy.orm")
    return orm is not None and isinstance(connection, orm.Session)


def is_async_sqlalchemy(connection: Any) -> bool:
    # Importing these needs greenlet, which few producers have.
    aio = sys.modules.get("sqlalchemy.ext.asyncio")
    return aio is not None and isinstance(connection, aio.AsyncConnection | aio.AsyncSession | aio.async_scoped_session)


@contextmanager
def callers_errors() -> Iterator[None]:
    """The producer's own connection may be closed, within a failed transaction, or that of another database."""
    try:
        yield
    except (SQLAlchemyError, psycopg.Error) as error:
        raise translated(None, error) from error


def as_query(text: str) -> Any:
    return text  # psycopg types queries as LiteralString; ours is one, built once at import


def register_functions_if_sqlite(connection: Connection) -> None:
    """A producer's own SQLite connection does not have the functions that our statements call."""
    if connection.dialect.name == "sqlite":
        register_functions(connection.connection.driver_connection)


def after_commit(session: Session, publish: Callable[[], None]) -> None:
    """Once, at the outermost commit; a rollback drops it."""
    if _WAITING not in session.info:
        session.info[_WAITING] = []
        # Once per session, never removed: a listener cannot remove itself while SQLAlchemy calls it.
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


def unfit(connection: Any) -> InvalidArgument:
    expected = "give a SQLAlchemy Session or Connection, or a psycopg Connection (AsyncRival: their async forms)."
    return InvalidArgument(
        "connection", f"{type(connection).__qualname__} cannot be joined by a start or an event: {expected}"
    )
