"""Servers of a test's own where it hurts them, short leases and graces, and a ledger of what really ran."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from rival_client.db.database import Database
from rival_client.settings import Settings
from rival_workers.dev.broker_server import BrokerServer
from rival_workers.dev.postgres_server import PostgresServer
from rival_workers.store import migrations
from tests.support.chaos import Ledger
from tests.support.workers import Workers


@pytest.fixture
def own_directory() -> Iterator[Path]:
    """Short, since the path of a unix socket may have 104 bytes at most."""
    with tempfile.TemporaryDirectory(prefix="chaos-", ignore_cleanup_errors=True) as name:
        yield Path(name)


@pytest.fixture
def own_broker(own_directory: Path) -> Iterator[BrokerServer]:
    """A broker that may be killed, frozen and emptied."""
    server = BrokerServer(own_directory)
    server.start()
    yield server
    server.stop()


@pytest.fixture
def own_postgres(own_directory: Path) -> Iterator[PostgresServer]:
    """A Postgres that may be killed and restarted."""
    server = PostgresServer(own_directory)
    server.start()
    database = Database(server.url)
    migrations.upgrade(database)
    database.dispose()
    yield server
    server.stop()


@pytest.fixture
def settings(request: pytest.FixtureRequest, queue: str) -> Settings:
    """On the test's own servers where it asks for them, on the shared ones otherwise."""
    mine = request.fixturenames
    database_url = (
        request.getfixturevalue("own_postgres").url
        if "own_postgres" in mine
        else request.getfixturevalue("database_url")
    )
    broker_url = (
        request.getfixturevalue("own_broker").url if "own_broker" in mine else request.getfixturevalue("broker_url")
    )
    return Settings(database_url=database_url, broker_url=broker_url, queue=queue, ring_grace=2.0)


@pytest.fixture
def workers(workers: Workers) -> Workers:
    workers.env["RIVAL_RING_GRACE"] = "2"
    workers.env.pop("PYTHONDONTWRITEBYTECODE", None)  # these start dozens of processes: compile once, not each time
    return workers


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(tmp_path / "ledger.txt")
