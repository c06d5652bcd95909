"""One Postgres database that many tests use, one after the other: its connections, what they have prepared and what
was compiled for it outlive the test. To make all of that again costs more than most tests do.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from rival_client import Rival
from rival_client.db.database import Database
from rival_client.db.prepared import PreparedPool
from rival_client.db.sqlite import Clock
from rival_workers.store import DEFAULT_POOL, Store, open_store
from rival_workers.store.postgres import PostgresStore
from rival_workers.store.postgres.groups import GROUP_SETTINGS


class SharedPreparedPool(PreparedPool):
    """Stays connected when its user closes it."""

    def close(self) -> None:
        pass

    def close_for_good(self) -> None:
        super().close()


class SharedDatabase:
    def __init__(self, url: str) -> None:
        self.database = Database(url, pool_size=DEFAULT_POOL)
        self.pool = SharedPreparedPool(url)
        self.groups = SharedPreparedPool(url, GROUP_SETTINGS)

    def close(self) -> None:
        self.pool.close_for_good()
        self.groups.close_for_good()
        self.database.dispose()


class BorrowedDatabase(Database):
    """Its listeners are its own; connections and compiled statements are shared."""

    def __init__(self, shared: SharedDatabase) -> None:
        self.url, self.is_postgres = shared.database.url, True
        self.engine = shared.database.engine.execution_options()

    def dispose(self) -> None:
        pass


_shared: dict[str, SharedDatabase] = {}
User = TypeVar("User", PostgresStore, Rival)


@contextmanager
def shared_database(url: str) -> Iterator[str]:
    _shared[url] = SharedDatabase(url)
    yield url
    _shared.pop(url).close()


def database_at(url: str, *, clock: Clock = time.time) -> Database:
    """A shared one, or one of its own if that URL is not shared."""
    return BorrowedDatabase(_shared[url]) if url in _shared else Database(url, clock=clock, durable=False)


def store_at(url: str, *, clock: Clock = time.time, **options: Any) -> Store:
    if url not in _shared:
        return open_store(url, clock=clock, durable=False, **options)
    return with_shared_pool(PostgresStore(database_at(url), **options))


def with_shared_pool(user: User) -> User:
    """Replaces the pools that a store or client has made, which connect when they are first used."""
    if user.database.url in _shared:
        shared = _shared[user.database.url]
        user._prepared = shared.pool
        if isinstance(user, PostgresStore):
            user._groups = shared.groups
    return user
