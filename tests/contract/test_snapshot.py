"""Reading a run and its steps takes several statements; what they show together must have been true together."""

from __future__ import annotations

import pytest
from sqlalchemy import func, select

from rival_client.db.database import Database
from rival_client.db.fleet_tables import executors
from rival_workers.store.sql_store import SqlStore


@pytest.mark.parametrize("url", ["database_url", "sqlite_url"])
def test_all_reads_of_a_snapshot_see_the_same_moment(url: str, request: pytest.FixtureRequest) -> None:
    database = Database(request.getfixturevalue(url))
    store = SqlStore(Database(database.url))
    count = select(func.count()).select_from(executors)
    with database.snapshot() as connection:
        assert connection.scalar(count) == 0
        store.add_executor("e", "host", 1, "worker", 15)
        assert connection.scalar(count) == 0
    with database.snapshot() as connection:
        assert connection.scalar(count) == 1
    store.close()
    database.dispose()
