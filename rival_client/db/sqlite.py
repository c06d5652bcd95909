"""Makes SQLite behave like Postgres: real transactions, a clock, and functions that the statements call."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Callable
from functools import cache
from typing import Any

from sqlalchemy import Connection, Dialect, Engine, create_engine, event
from sqlalchemy.util import LRUCache

from rival_client.model.json_match import is_contained
from rival_client.model.payload import serialise

Clock = Callable[[], float]
#: Marks a connection whose statements each stand for themselves.
NO_BEGIN = "rival_no_begin"


def with_shared_statements(engine: Engine) -> Engine:
    """The same engine with the compiled statements of all SQLite engines of the process. Otherwise tests that open one
    file each would compile every statement again."""
    dialect, compiled = _shared_dialect_and_statements()
    known = {"compiled_cache": compiled}
    return Engine(engine.pool, dialect, engine.url, execution_options=known, hide_parameters=True)


@cache
def _shared_dialect_and_statements() -> tuple[Dialect, LRUCache[Any, Any]]:
    engine = create_engine("sqlite://", json_serializer=serialise, json_deserializer=json.loads)
    # A dialect reads the version of its library from its first connection.
    engine.connect().close()
    engine.dispose()
    return engine.dialect, LRUCache(500)


def register_functions(connection: Any, clock: Clock = time.time) -> None:
    """Add the SQL functions that statements call: the clock, and the comparison of JSON values."""
    # Microseconds, as a datetime has them: a value that was read must compare equal to the stored one.
    connection.create_function("rival_now", 0, lambda: round(clock(), 6))
    connection.create_function("rival_holds", 2, _holds)


def _holds(stored: Any, wanted: str) -> bool:
    # SQLite keeps JSON that is a bare number as a number.
    return stored is not None and is_contained(json.loads(wanted), json.loads(str(stored)))


def prepare_sqlite(engine: Engine, clock: Clock, durable: bool) -> None:
    """WAL, a real BEGIN IMMEDIATE (so that a transition never starts on a stale read), and our clock."""

    @event.listens_for(engine, "connect")
    def on_connect(connection: sqlite3.Connection, _: Any) -> None:
        connection.isolation_level = None
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute(f"PRAGMA synchronous={'FULL' if durable else 'OFF'}")
        connection.execute("PRAGMA busy_timeout=30000")
        register_functions(connection, clock)

    @event.listens_for(engine, "begin")
    def on_begin(connection: Connection) -> None:
        if not connection.get_execution_options().get(NO_BEGIN):
            connection.exec_driver_sql("BEGIN IMMEDIATE")
