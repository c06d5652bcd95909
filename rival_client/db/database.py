"""A connection to Postgres or SQLite that behaves the same on both: short transactions and bounded waits."""

from __future__ import annotations

import datetime as dt
import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from sqlalchemy import Connection, Engine, create_engine
from sqlalchemy.exc import SQLAlchemyError

from rival_client.db.conflict_retries import repeat_conflicts
from rival_client.db.database_errors import translated
from rival_client.db.database_urls import CONNECT_TIMEOUT, LIBPQ_OPTIONS, parsed_url, sqlalchemy_url
from rival_client.db.sqlite import NO_BEGIN, Clock, prepare_sqlite, with_shared_statements
from rival_client.forks import call_after_fork, leave_open
from rival_client.model.payload import serialise

T = TypeVar("T")


class Database:
    """One engine and one clock. `clock` and `durable` are for SQLite: Postgres uses its own clock, and the file of a
    test need not survive a power cut.
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
            prepare_sqlite(self.engine, clock, durable)
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

    def transact_alone(self, operation: Callable[[Connection], T]) -> T:
        """The same with a transaction for each statement."""

        def once() -> T:
            with self.autocommit() as connection:
                return operation(connection)

        return repeat_conflicts(once)

    @contextmanager
    def without_seqscan(self) -> Iterator[Connection]:
        """A transaction in which Postgres prefers any usable index to a sequential scan, also before it has
        statistics of new rows. For searches among very many rows that rarely find one.
        """
        with self.transaction() as connection:
            if self.is_postgres:
                connection.exec_driver_sql("SET LOCAL enable_seqscan = off")
            yield connection

    @contextmanager
    def autocommit(self) -> Iterator[Connection]:
        """For a single statement: on Postgres it saves the round trips of BEGIN and COMMIT, and on SQLite a mere
        read does not wait for a writer."""
        options: dict[str, Any] = {"isolation_level": "AUTOCOMMIT"} if self.is_postgres else {NO_BEGIN: True}
        with self._reachable(), self.engine.connect() as connection:
            yield connection.execution_options(**options)

    @contextmanager
    def snapshot(self) -> Iterator[Connection]:
        """Several reads that see the same moment and block no other transaction."""
        options: dict[str, Any] = {"isolation_level": "REPEATABLE READ"} if self.is_postgres else {NO_BEGIN: True}
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


def _engine(url: str, pool_size: int, application_name: str) -> Engine:
    options: dict[str, Any] = {
        "json_serializer": serialise,
        "json_deserializer": json.loads,
        "hide_parameters": True,
    }
    if parsed_url(url).get_backend_name() == "sqlite":
        return with_shared_statements(
            create_engine(url, connect_args={"timeout": 30, "check_same_thread": False}, **options)
        )
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


def utc(value: dt.datetime | None) -> dt.datetime | None:
    return value.astimezone(dt.UTC) if value else None
