"""One suite, every backend: SQLite, Postgres with its hot statements, and the portable statements on Postgres."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import delete

from rival_client.database import Database
from rival_client.tables import metadata
from rival_workers.dev.stack import Stack, create_database, drop_database
from rival_workers.store import migrations
from rival_workers.store.postgres import PostgresStore
from rival_workers.store.sql import SqlStore
from tests.contract.stage import Stage
from tests.support.inline import Clock, Inline

BACKENDS = ["sqlite", "postgres", "postgres-plain"]


@pytest.fixture(scope="session")
def contract_database(stack: Stack, template: str, worker_id: str) -> Iterator[str]:
    """One for the whole suite, emptied before each test: making and dropping one costs more than most tests here."""
    name = f"contract_{template}_{worker_id}"
    yield create_database(stack.database_url, name, template=template)
    drop_database(stack.database_url, name)


@pytest.fixture
def postgres_url(contract_database: str) -> str:
    database = Database(contract_database)
    with database.transaction() as connection:
        for table in metadata.sorted_tables:
            connection.execute(delete(table))
    database.dispose()
    return contract_database


@pytest.fixture(scope="session")
def migrated_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("sqlite") / "migrated.db"
    database = Database(f"sqlite:///{file}")
    migrations.upgrade(database)
    with database.engine.connect() as connection:
        connection.exec_driver_sql("COMMIT")
        connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")
    database.dispose()
    return file


@pytest.fixture
def file_url(migrated_file: Path, tmp_path: Path) -> str:
    shutil.copy(migrated_file, tmp_path / "rival.db")
    return f"sqlite:///{tmp_path / 'rival.db'}"


@pytest.fixture(params=BACKENDS)
def stage(request: pytest.FixtureRequest) -> Iterator[Stage]:
    clock = Clock()
    backend = request.param
    url = request.getfixturevalue("file_url" if backend == "sqlite" else "postgres_url")
    store = (PostgresStore if backend == "postgres" else SqlStore)(Database(url, clock=clock))
    yield Stage(store, clock)
    store.close()


@pytest.fixture(params=["postgres", "postgres-plain"])
def pg_stage(request: pytest.FixtureRequest, postgres_url: str) -> Iterator[Stage]:
    """Where two transactions can be open at once: SQLite takes one writer at a time."""
    kind = PostgresStore if request.param == "postgres" else SqlStore
    store = kind(Database(postgres_url))
    yield Stage(store, Clock())
    store.close()


@pytest.fixture(params=["sqlite", "postgres"])
def inline(request: pytest.FixtureRequest) -> Iterator[Inline]:
    """A fleet of one; on SQLite its clock can be set."""
    url = request.getfixturevalue("file_url" if request.param == "sqlite" else "postgres_url")
    opened = Inline(url, clock=Clock() if request.param == "sqlite" else None)
    yield opened
    opened.close()
