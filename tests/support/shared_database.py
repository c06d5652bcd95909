"""One Postgres database that many tests use, one after the other: its connections, what they have prepared and what
was compiled for it outlive the test. To make all of that again costs more than most tests do.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from rival_client import Rival
from rival_client.db.database import Clock, Database
from rival_client.db.prepared import PreparedPool
from rival_workers.store import DEFAULT_POOL, Store, open_store
from rival_workers.store.postgres.store import PostgresStore


class KeptLine(PreparedPool):
    """Stays connected when its user closes it."""

    def close(self) -> None:
        pass

    def close_at_last(self) -> None:
        super().close()


class Kept:
    def __init__(self, url: str) -> None:
        self.database = Database(url, pool_size=DEFAULT_POOL)
        self.line = KeptLine(url)

    def close(self) -> None:
        self.line.close_at_last()
        self.database.dispose()


class Lent(Database):
    """Its listeners are its own; connections and compiled statements are shared."""

    def __init__(self, kept: Kept) -> None:
        self.url, self.is_postgres = kept.database.url, True
        self.engine = kept.database.engine.execution_options()

    def dispose(self) -> None:
        pass


_kept: dict[str, Kept] = {}
User = TypeVar("User", PostgresStore, Rival)


@contextmanager
def kept(url: str) -> Iterator[str]:
    _kept[url] = Kept(url)
    yield url
    _kept.pop(url).close()


def database_at(url: str, *, clock: Clock = time.time) -> Database:
    """A shared one, or one of its own if that URL is not shared."""
    return Lent(_kept[url]) if url in _kept else Database(url, clock=clock, durable=False)


def store_at(url: str, *, clock: Clock = time.time, **options: Any) -> Store:
    if url not in _kept:
        return open_store(url, clock=clock, durable=False, **options)
    return with_kept_line(PostgresStore(database_at(url), **options))


def with_kept_line(user: User) -> User:
    """Both have a line of their own, which connects when it is first used."""
    if user.database.url in _kept:
        user._prepared = _kept[user.database.url].line
    return user
