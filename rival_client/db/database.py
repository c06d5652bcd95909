"""A connection to Postgres or SQLite that behaves the same on both: short transactions and bounded waits."""

from __future__ import annotations

import datetime as dt
import json
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, TypeVar

from sqlalchemy import URL, Connection, Dialect, Engine, create_engine, event
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, SQLAlchemyError
from sqlalchemy.util import LRUCache

from rival_client.db.database_errors import repeat_conflicts, translated
from rival_client.errors import ConfigurationError
from rival_client.forks import call_after_fork, leave_open
from rival_client.model.json_match import is_held
from rival_client.model.masking import masked
from rival_client.model.payload import serialise

CONNECT_TIMEOUT = 5
#: libpq gives up on a silent peer after this, so that nothing hangs on a cut cable.
LIBPQ_OPTIONS: dict[str, Any] = {
    "connect_timeout": CONNECT_TIMEOUT,
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 10_000,
}

T = TypeVar("T")
Clock = Callable[[], float]
#: Marks a connection whose statements each stand for themselves.
_NO_BEGIN = "rival_no_begin"


def sqlalchemy_url(url: str) -> str:
    """The URL with the driver that Rival uses; `postgres://` and plain `postgresql://` are fine."""
    scheme, sep, rest = url.partition("://")
    if scheme.split("+")[0] in ("postgres", "postgresql"):
        return f"postgresql+psycopg{sep}{rest}"
    if scheme.split("+")[0] == "sqlite":
        return f"sqlite{sep}{rest}"
    raise ConfigurationError(
        f"{masked(url)!r} is neither Postgres nor SQLite. Give postgresql://… or sqlite:///file.db."
    )


def libpq_url(url: str) -> str:
    """The same for psycopg itself."""
    return "postgresql" + sqlalchemy_url(url).removeprefix("postgresql+psycopg")


class Database:
    """One engine, one clock. `clock` is SQLite's only: Postgres has its own, and it decides. So is `durable`: a test's
    file need not outlive a power cut.
    """

    def __init__(
        self,
        url: str,
        *,
        pool_size: int = 5,
        clock: Clock = time.time,
        durable: bool = True,
        application_name: str = "rival",
    ) -> None:
        self.url = url
        self.engine = _engine(sqlalchemy_url(url), pool_size, application_name)
        self.is_postgres = self.engine.dialect.name == "postgresql"
        if not self.is_postgres:
            _prepare_sqlite(self.engine, clock, durable)
        call_after_fork(self._drop_connections)

    def _drop_connections(self) -> None:
        leave_open([self.engine.pool])
        self.engine.dispose(close=False)

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """All of it or nothing, committed when the block ends."""
        with self._reachable(), self.engine.begin() as connection:
            yield connection

    def transact(self, operation: Callable[[Connection], T]) -> T:
        """Run the operation in a transaction, and again in a new one when it lost against another transaction."""

        def once() -> T:
            with self.transaction() as connection:
                return operation(connection)

        return repeat_conflicts(once)

    @contextmanager
    def without_seqscan(self) -> Iterator[Connection]:
        """A transaction in which Postgres reads no table from end to end that has an index which will do, whatever it
        guesses of rows that it has no statistics of yet. For what is looked for among very many, and is rarely there.
        """
        with self.transaction() as connection:
            if self.is_postgres:
                connection.exec_driver_sql("SET LOCAL enable_seqscan = off")
            yield connection

    @contextmanager
    def autocommit(self) -> Iterator[Connection]:
        """For a single statement: on Postgres it saves the round trips of BEGIN and COMMIT, and on SQLite a mere
        read does not wait for a writer."""
        options: dict[str, Any] = {"isolation_level": "AUTOCOMMIT"} if self.is_postgres else {_NO_BEGIN: True}
        with self._reachable(), self.engine.connect() as connection:
            yield connection.execution_options(**options)

    @contextmanager
    def snapshot(self) -> Iterator[Connection]:
        """Several reads that see the same moment and block no other transaction."""
        options: dict[str, Any] = {"isolation_level": "REPEATABLE READ"} if self.is_postgres else {_NO_BEGIN: True}
        with self._reachable(), self.engine.connect() as plain:
            connection = plain.execution_options(**options)
            if not self.is_postgres:
                connection.exec_driver_sql("BEGIN")
            yield connection

    def dispose(self) -> None:
        self.engine.dispose()

    @contextmanager
    def _reachable(self) -> Iterator[None]:
        """Errors of the drivers become Rival's own."""
        try:
            yield
        except SQLAlchemyError as error:
            raise translated(self.url, error) from error


def parsed_url(url: str) -> URL:
    """ConfigurationError if it is not the URL of a database that Rival can use."""
    try:
        return make_url(sqlalchemy_url(url))
    except (ArgumentError, ValueError):
        raise ConfigurationError(
            f"{masked(url)!r} is not a database URL. Give postgresql://user:password@host:5432/name."
        ) from None


def _engine(url: str, pool_size: int, application_name: str) -> Engine:
    options: dict[str, Any] = {
        "json_serializer": serialise,
        "json_deserializer": json.loads,
        "hide_parameters": True,
    }
    if parsed_url(url).get_backend_name() == "sqlite":
        return _knowing(create_engine(url, connect_args={"timeout": 30, "check_same_thread": False}, **options))
    return create_engine(
        url,
        pool_size=pool_size,
        max_overflow=pool_size * 2,
        pool_timeout=CONNECT_TIMEOUT,
        pool_pre_ping=False,
        pool_use_lifo=True,
        connect_args={**LIBPQ_OPTIONS, "application_name": application_name},
        **options,
    )


def _knowing(engine: Engine) -> Engine:
    """The same engine, which knows all that others of the process have compiled: SQLite is one library, whatever the
    file, and tests that open one file each would compile every statement again."""
    dialect, compiled = _sqlite_knowledge()
    known = {"compiled_cache": compiled}
    return Engine(engine.pool, dialect, engine.url, execution_options=known, hide_parameters=True)


@cache
def _sqlite_knowledge() -> tuple[Dialect, LRUCache[Any, Any]]:
    engine = create_engine("sqlite://", json_serializer=serialise, json_deserializer=json.loads)
    # A dialect learns of its library with the first connection.
    engine.connect().close()
    engine.dispose()
    return engine.dialect, LRUCache(500)


def teach_sqlite(connection: Any, clock: Clock = time.time) -> None:
    """The clock and the look into JSON, as the functions that our statements call."""
    # Microseconds, as a datetime has them: what was read back must compare equal to what is stored.
    connection.create_function("rival_now", 0, lambda: round(clock(), 6))
    connection.create_function("rival_holds", 2, _holds)


def _holds(stored: Any, wanted: str) -> bool:
    # SQLite keeps JSON that is a bare number as a number.
    return stored is not None and is_held(json.loads(wanted), json.loads(str(stored)))


def _prepare_sqlite(engine: Engine, clock: Clock, durable: bool) -> None:
    """WAL, a real BEGIN IMMEDIATE (so that a transition never starts on a stale read), and our clock."""

    @event.listens_for(engine, "connect")
    def on_connect(connection: sqlite3.Connection, _: Any) -> None:
        connection.isolation_level = None
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute(f"PRAGMA synchronous={'FULL' if durable else 'OFF'}")
        connection.execute("PRAGMA busy_timeout=30000")
        teach_sqlite(connection, clock)

    @event.listens_for(engine, "begin")
    def on_begin(connection: Connection) -> None:
        if not connection.get_execution_options().get(_NO_BEGIN):
            connection.exec_driver_sql("BEGIN IMMEDIATE")


def utc(value: dt.datetime | None) -> dt.datetime | None:
    return value.astimezone(dt.UTC) if value else None
