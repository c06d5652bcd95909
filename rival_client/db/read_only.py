"""A database for programs that only look: every read is a short read-only transaction, and is counted.

The dashboard uses it, so that no page can write, run for minutes, or hide what it costs.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Engine, event

from rival_client.db.database import Database
from rival_client.errors import RivalError

#: SQLSTATE of a statement that the server has cancelled because of its time limit.
TIMED_OUT = "57014"


#: A page reads the first rows of an index in its order. Where Postgres has no statistics yet, it would take a million
#: runs of a workflow for a few, and read and sort them all.
_LIMITS = (
    "SET LOCAL statement_timeout = {milliseconds}; SET LOCAL enable_seqscan = off; SET LOCAL enable_bitmapscan = off"
)


@dataclass
class Cost:
    """Statements, and the milliseconds that they took."""

    queries: int = 0
    ms: float = 0.0

    def add(self, other: Cost) -> None:
        self.queries += other.queries
        self.ms += other.ms


_cost: ContextVar[Cost | None] = ContextVar("rival_cost", default=None)


@contextmanager
def counted() -> Iterator[Cost]:
    """Counts the statements of read-only databases within the block, also in threads that copy its context."""
    cost = Cost()
    mark = _cost.set(cost)
    try:
        yield cost
    finally:
        _cost.reset(mark)


class ReadOnlyDatabase(Database):
    """`seconds`: the longest time of one statement (Postgres only)."""

    def __init__(self, url: str, *, seconds: float = 3.0, pool_size: int = 4) -> None:
        super().__init__(url, pool_size=pool_size, application_name="rival-dashboard")
        self._limits = _LIMITS.format(milliseconds=round(seconds * 1000))
        _count_statements(self.engine)

    @contextmanager
    def autocommit(self) -> Iterator[Connection]:
        with self.snapshot() as connection:
            yield connection

    @contextmanager
    def snapshot(self) -> Iterator[Connection]:
        if not self.is_postgres:
            with super().snapshot() as connection:
                yield connection
            return
        options: dict[str, Any] = {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True}
        with self._reachable(), self.engine.connect() as plain:
            connection = plain.execution_options(**options)
            connection.exec_driver_sql(self._limits)
            yield connection

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        raise RivalError("This connection only reads.")
        yield


def _count_statements(engine: Engine) -> None:
    @event.listens_for(engine, "before_cursor_execute")
    def before(connection: Connection, *_: Any) -> None:
        connection.info["rival_began"] = time.perf_counter()

    @event.listens_for(engine, "after_cursor_execute")
    def after(connection: Connection, _cursor: Any, statement: str, *_: Any) -> None:
        cost = _cost.get()
        if cost is not None and not statement.startswith(("SET LOCAL", "BEGIN")):
            cost.add(Cost(1, (time.perf_counter() - connection.info["rival_began"]) * 1000))
