"""Forces one operation into the middle of another: before a chosen statement of the first, the second runs until it has
ended, or until it waits for a lock of the first.

On SQLite a transaction is alone, so only statements outside of one count.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from sqlalchemy import event

from rival_client.db.database import Database
from rival_client.db.database_urls import libpq_url
from tests.support.locks import BLOCKED
from tests.support.threads import join_all


class Interleaving:
    """Runs `other` in a thread of its own when the thread that made this is about to execute the statement `at`: one
    that begins like this, or the one with this number."""

    def __init__(self, database: Database, at: str | int, other: Callable[[], object]) -> None:
        self._database, self._at, self._other = database, at, other
        self._number = -1
        self._first = threading.get_ident()
        self._second = threading.Thread(target=self._run, daemon=True)
        self.error: BaseException | None = None

    @property
    def has_begun(self) -> bool:
        """False: the first operation had fewer statements."""
        return self._second.ident is not None

    def _run(self) -> None:
        try:
            self._other()
        except BaseException as error:
            self.error = error

    def on_statement(self, connection: Any, _: Any, statement: str, *more: Any) -> None:
        if threading.get_ident() != self._first or _is_alone(connection) or self.has_begun:
            return
        self._number += 1
        is_it = statement.startswith(self._at) if isinstance(self._at, str) else self._number == self._at
        if is_it:
            self._second.start()
            self._until_it_waits()

    def _until_it_waits(self) -> None:
        if not self._database.is_postgres:
            join_all([self._second])
            return
        end = time.monotonic() + 30
        with psycopg.connect(libpq_url(self._database.url), autocommit=True) as watcher:
            while self._second.is_alive() and not _is_blocked(watcher):
                assert time.monotonic() < end, "the second operation neither ends nor waits"
                time.sleep(0.002)

    def conclude(self) -> None:
        if self.has_begun:
            join_all([self._second])


def _is_alone(connection: Any) -> bool:
    return connection.dialect.name == "sqlite" and bool(connection.connection.dbapi_connection.in_transaction)


def _is_blocked(watcher: psycopg.Connection[Any]) -> bool:
    [count] = watcher.execute(BLOCKED).fetchone() or (0,)
    return bool(count)


@contextmanager
def interleaved(database: Database, at: str | int, other: Callable[[], object]) -> Iterator[Interleaving]:
    """What the block executes is the first operation. At its end both have ended."""
    both = Interleaving(database, at, other)
    event.listen(database.engine, "before_cursor_execute", both.on_statement)
    try:
        yield both
    finally:
        event.remove(database.engine, "before_cursor_execute", both.on_statement)
        both.conclude()
