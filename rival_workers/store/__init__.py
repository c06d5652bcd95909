"""The store of runs: one interface, two backends, opened by URL."""

from __future__ import annotations

import time
from typing import Any

from rival_client.db.database import Database
from rival_client.db.sqlite import Clock
from rival_workers.store.interface import Store
from rival_workers.store.postgres import PostgresStore
from rival_workers.store.sql_store import SqlStore

DEFAULT_POOL = 10


def open_store(
    url: str, *, pool_size: int = DEFAULT_POOL, clock: Clock = time.time, durable: bool = True, **options: Any
) -> Store:
    """`options`: ring_grace, near, max_payload and served, from the settings."""
    database = Database(url, pool_size=pool_size, clock=clock, durable=durable)
    return (PostgresStore if database.is_postgres else SqlStore)(database, **options)


__all__ = ["Store", "open_store"]
