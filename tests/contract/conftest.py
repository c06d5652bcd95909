"""One suite, every backend: SQLite, Postgres with its hot statements, and the portable statements on Postgres."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rival_client.database import Database
from rival_workers.store.postgres import PostgresStore
from rival_workers.store.sql import SqlStore
from tests.contract.stage import Stage
from tests.support.inline import Clock

BACKENDS = ["sqlite", "postgres", "postgres-plain"]


@pytest.fixture(params=BACKENDS)
def stage(request: pytest.FixtureRequest) -> Iterator[Stage]:
    clock = Clock()
    backend = request.param
    url = request.getfixturevalue("sqlite_url" if backend == "sqlite" else "database_url")
    store = (PostgresStore if backend == "postgres" else SqlStore)(Database(url, clock=clock))
    yield Stage(store, clock)
    store.close()


@pytest.fixture(params=["postgres", "postgres-plain"])
def pg_stage(request: pytest.FixtureRequest, database_url: str) -> Iterator[Stage]:
    """Where two transactions can be open at once: SQLite takes one writer at a time."""
    kind = PostgresStore if request.param == "postgres" else SqlStore
    store = kind(Database(database_url))
    yield Stage(store, Clock())
    store.close()
