"""The database as the dashboard has it: nothing can be written through it, and no statement takes long."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

import pytest
from sqlalchemy import text

from rival_client.db.read_only import ReadOnlyDatabase, counted
from rival_client.errors import DatabaseError, RivalError
from rival_workers import step
from rival_workers.dashboard.problem_json import refused
from tests.support.inline import Inline
from tests.support.output import whole

SECONDS = 0.2


@pytest.fixture(params=["sqlite", "postgres"])
def inline(request: pytest.FixtureRequest) -> Iterator[Inline]:
    opened = Inline(request.getfixturevalue("file_url" if request.param == "sqlite" else "postgres_url"))
    opened.define("w", step(lambda: 1, name="a"))
    opened.rival.run("w", {}, "r")
    opened.drain()
    yield opened
    opened.close()


@pytest.fixture
def database(inline: Inline) -> Iterator[ReadOnlyDatabase]:
    opened = ReadOnlyDatabase(inline.rival.database.url, seconds=SECONDS)
    yield opened
    opened.dispose()


def test_nothing_is_written(inline: Inline, database: ReadOnlyDatabase) -> None:
    with pytest.raises(RivalError, match=whole("This connection only reads.")), database.transaction():
        pass
    for opened in (database.snapshot, database.autocommit):
        with suppress(DatabaseError), opened() as connection:
            connection.execute(text("UPDATE rival_runs SET status = 'failed'"))
    assert inline.rival.state("r").status == "completed"


def test_statements_are_counted(database: ReadOnlyDatabase) -> None:
    with counted() as cost, database.snapshot() as connection:
        for _ in range(3):
            connection.execute(text("SELECT 1"))
    assert cost.queries == 3
    assert cost.ms > 0


def test_postgres_refuses_writes_and_ends_long_statements(postgres_url: str) -> None:
    database = ReadOnlyDatabase(postgres_url, seconds=SECONDS)
    with database.snapshot() as connection:
        assert connection.scalar(text("SHOW application_name")) == "rival-dashboard"
    with (
        pytest.raises(
            DatabaseError,
            match=whole(
                "The database at postgresql://… takes no work now (cannot execute DELETE in a read-only "
                "transaction). Check that it is not read-only, full or overloaded; `rival doctor` checks the rest."
            ),
        ),
        database.snapshot() as connection,
    ):
        connection.execute(text("DELETE FROM rival_runs"))
    with pytest.raises(DatabaseError) as caught, database.snapshot() as connection:
        connection.execute(text("SELECT pg_sleep(60)"))
    problem = refused(caught.value)
    assert (problem.status, problem.code) == (504, "TooWide")
    database.dispose()
