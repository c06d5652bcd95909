"""One suite, every backend: SQLite, Postgres with its hot statements, and the portable statements on Postgres."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from rival_client.db import metadata
from rival_client.db.database import Database
from rival_workers.dev.stack import Stack, create_database, drop_database
from rival_workers.store.postgres import PostgresStore
from rival_workers.store.sql_store import SqlStore
from tests.contract.stage import Stage
from tests.support import lock_order
from tests.support.dashboard import Site
from tests.support.inline import Clock, Inline
from tests.support.limits import OtherTransaction, Slots
from tests.support.shared_database import database_at, shared_database, with_shared_pool

#: The portable statements on Postgres: test_fast_paths.py compares them with the fast ones in `make test`, too.
PLAIN = pytest.param("postgres-plain", marks=pytest.mark.long)
BACKENDS = ["sqlite", "postgres", PLAIN]


@pytest.fixture(autouse=True)
def no_heartbeat_left() -> Iterator[None]:
    """A worker that a test does not close would go on beating, and complain when its database is gone."""
    before = set(threading.enumerate())
    yield
    left = [one for one in threading.enumerate() if one.name == "rival-heartbeat" and one not in before]
    assert not left, f"{len(left)} workers were not closed"


@pytest.fixture
def locks_in_order() -> Iterator[None]:
    """Every transaction of the test takes its locks in the one order."""
    with lock_order.checked():
        yield


@pytest.fixture(scope="session")
def contract_database(stack: Stack, template: str, worker_id: str) -> Iterator[str]:
    """One for the whole suite, emptied before each test: making and dropping one costs more than most tests here."""
    name = f"contract_{template}_{worker_id}"
    with shared_database(create_database(stack.database_url, name, template=template)) as url:
        yield url
    drop_database(stack.database_url, name)


@pytest.fixture
def postgres_url(contract_database: str) -> str:
    with database_at(contract_database).autocommit() as connection:
        connection.exec_driver_sql("; ".join(f"DELETE FROM {table.name}" for table in metadata.sorted_tables))
    return contract_database


@pytest.fixture
def file_url(sqlite_url: str) -> str:
    return sqlite_url


def _postgres(database: Database) -> PostgresStore:
    return with_shared_pool(PostgresStore(database))


@pytest.fixture(params=BACKENDS)
def stage(request: pytest.FixtureRequest) -> Iterator[Stage]:
    clock = Clock()
    backend = request.param
    url = request.getfixturevalue("file_url" if backend == "sqlite" else "postgres_url")
    store = (_postgres if backend == "postgres" else SqlStore)(database_at(url, clock=clock))
    yield Stage(store, clock)
    store.close()


@pytest.fixture
def sqlite_stage(file_url: str) -> Iterator[Stage]:
    """Where only SQLite behaves like that."""
    clock = Clock()
    store = SqlStore(database_at(file_url, clock=clock))
    yield Stage(store, clock)
    store.close()


@pytest.fixture(params=["postgres", PLAIN])
def pg_stage(request: pytest.FixtureRequest, postgres_url: str) -> Iterator[Stage]:
    """Where two transactions can be open at once: SQLite takes one writer at a time."""
    store = (_postgres if request.param == "postgres" else SqlStore)(database_at(postgres_url))
    yield Stage(store, Clock())
    store.close()


@pytest.fixture(params=["sqlite", "postgres"])
def inline(request: pytest.FixtureRequest) -> Iterator[Inline]:
    """A fleet of one; on SQLite its clock can be set."""
    url = request.getfixturevalue("file_url" if request.param == "sqlite" else "postgres_url")
    opened = Inline(url, clock=Clock() if request.param == "sqlite" else None)
    yield opened
    opened.close()


@pytest.fixture(params=["sqlite", "postgres"])
def site(request: pytest.FixtureRequest) -> Iterator[Site]:
    url = request.getfixturevalue("file_url" if request.param == "sqlite" else "postgres_url")
    inline = Inline(url)
    opened = Site(inline)
    yield opened
    opened.close()
    inline.close()


@pytest.fixture
def other(slots: Slots) -> Iterator[OtherTransaction]:
    other = OtherTransaction(slots)
    yield other
    other.connection.close()
