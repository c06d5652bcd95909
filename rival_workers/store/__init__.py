"""Where runs live: one interface, two backends, opened by URL."""

from __future__ import annotations

import time

from rival_client.database import Clock, Database
from rival_workers.store.base import Store
from rival_workers.store.postgres import PostgresStore
from rival_workers.store.sql import SqlStore

DEFAULT_POOL = 10


def open_store(url: str, *, ring_grace: float = 10.0, pool_size: int = DEFAULT_POOL, clock: Clock = time.time) -> Store:
    database = Database(url, pool_size=pool_size, clock=clock)
    if database.is_postgres:
        return PostgresStore(database, ring_grace=ring_grace)
    return SqlStore(database, ring_grace=ring_grace)


__all__ = ["Store", "open_store"]
