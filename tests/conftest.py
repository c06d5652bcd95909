"""Real servers, one stack per checkout; a database of its own, from a template, and a queue of its own per test."""

from __future__ import annotations

import gc
import os
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings as hypothesis_settings

from rival_client import Rival
from rival_client.db.database import Database
from rival_client.settings import Settings
from rival_workers.dev.stack import Stack, create_database, drop_database, open_stack
from rival_workers.store import migrations
from rival_workers.testing.world import migrated
from tests.support.workers import ROOT, Workers, worker_env
from tests.support.zygote import Zygote

# A machine that is busy for a moment does not make a property wrong.
hypothesis_settings.register_profile("rival", deadline=None)
hypothesis_settings.load_profile("rival")


def pytest_itemcollected(item: pytest.Item) -> None:
    """Tests that ask for a server when they run, by a parameter, have `postgres` in their id instead."""
    if "stack" in getattr(item, "fixturenames", ()):
        item.add_marker("servers")


def pytest_collection_finish() -> None:
    """What is imported and collected by now stays: without this every collection of garbage goes through it again."""
    gc.freeze()


@pytest.fixture(scope="session")
def stack() -> Iterator[Stack]:
    """Embedded servers, or those of RIVAL_TEST_DATABASE_URL and RIVAL_TEST_BROKER_URL: see tests/README.md."""
    given = {name: os.environ.get(f"RIVAL_TEST_{name.upper()}") or None for name in ("database_url", "broker_url")}
    with open_stack(ROOT / ".rival" / "test", **given) as opened:
        yield opened


@pytest.fixture(scope="session")
def template(stack: Stack) -> Iterator[str]:
    """A migrated, empty database."""
    name = f"template_{uuid.uuid4().hex[:12]}"
    url = create_database(stack.database_url, name)
    database = Database(url)
    migrations.upgrade(database)
    database.dispose()
    yield name
    drop_database(stack.database_url, name)


@pytest.fixture
def database_url(stack: Stack, template: str) -> Iterator[str]:
    name = f"test_{uuid.uuid4().hex[:12]}"
    yield create_database(stack.database_url, name, template=template)
    drop_database(stack.database_url, name)


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    file = tmp_path / "rival.db"
    file.write_bytes(migrated())
    return f"sqlite:///{file}"


@pytest.fixture
def broker_url(stack: Stack) -> str:
    return stack.broker_url


@pytest.fixture
def queue() -> str:
    return f"test-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def settings(database_url: str, broker_url: str, queue: str) -> Settings:
    return Settings(database_url=database_url, broker_url=broker_url, queue=queue)


@pytest.fixture
def rival(settings: Settings) -> Iterator[Rival]:
    """A producer on the test's own database and queue."""
    with Rival(settings=settings) as client:
        yield client


@pytest.fixture(scope="session")
def zygote() -> Iterator[Zygote]:
    """What commands and workers are forked from."""
    made = Zygote(ROOT)
    yield made
    made.close()


@pytest.fixture
def workers(settings: Settings, zygote: Zygote) -> Iterator[Workers]:
    fleet = Workers(worker_env(settings) | {"RIVAL_LEASE": "2"}, zygote)
    yield fleet
    fleet.clean_up()
