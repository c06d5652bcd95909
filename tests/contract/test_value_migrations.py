"""Rows that were stored as jsonb, or in SQLite's numeric columns, are still there after the migration."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from alembic import command
from sqlalchemy import text

from rival_client import Rival
from rival_client.db.database import Database
from rival_client.settings import Settings
from rival_workers.dev.stack import Stack, create_database, drop_database
from rival_workers.store import migrations
from tests.support.inline import CollectingDoorbell

BEFORE = "0009"


@pytest.fixture(params=["sqlite", "postgres"])
def old(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    """A database as it was before values were exact."""
    if request.param == "sqlite":
        yield from _opened(f"sqlite:///{tmp_path / 'old.db'}")
        return
    stack: Stack = request.getfixturevalue("stack")
    name = f"test_{uuid.uuid4().hex[:12]}"
    yield from _opened(create_database(stack.database_url, name))
    drop_database(stack.database_url, name)


def _opened(url: str) -> Iterator[Database]:
    database = Database(url)
    with database.transaction() as connection:
        command.upgrade(migrations.alembic_config(connection), BEFORE)
    yield database
    database.dispose()


def test_stored_values_are_kept_and_new_ones_are_exact(old: Database) -> None:
    moment = "now()" if old.is_postgres else "1700000000.0"
    with old.transaction() as connection:
        for run_id, value in {"object": '{"a": [1, 2.5], "b": "ä"}', "bare": "7", "float": "1.5", "none": None}.items():
            connection.execute(
                text(
                    "INSERT INTO rival_runs (id, workflow, version, status, input, created_at, completed_at, error) "
                    f"VALUES (:id, 'w', '1', 'failed', :value, {moment}, {moment}, :error)"
                ),
                {"id": run_id, "value": value, "error": '{"type": "E", "message": "no"}'},
            )
    migrations.upgrade(old)
    rival = Rival(settings=Settings(database_url=old.url), database=old, doorbell=CollectingDoorbell())
    assert {run.run_id: run.input for run in rival.runs()} == {
        "object": {"a": [1, 2.5], "b": "ä"},
        "bare": 7,
        "float": 1.5,
        "none": None,
    }
    assert [run.run_id for run in rival.runs(input={"b": "ä"}, error="E: no")] == ["object"]
    with old.transaction() as connection:
        connection.execute(text("UPDATE rival_runs SET input = '1.0' WHERE id = 'bare'"))
    assert repr(rival.state("bare").input) == "1.0"
