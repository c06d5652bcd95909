"""Each error of the database becomes one of Rival's by its kind, and a transaction that lost is repeated."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from sqlalchemy import text

from rival_client import DatabaseBusy, DatabaseRefused, DatabaseUnavailable, Rival
from rival_client.db.database import Database
from rival_client.db.database_urls import libpq_url
from rival_client.db.prepared import PreparedPool
from rival_client.db.prepared_statement import Statement
from rival_client.errors import ConfigurationError, DatabaseError
from rival_client.settings import Settings
from tests.contract.stage import COMPLETES, DONE, Stage
from tests.support.locks import until_blocked
from tests.support.output import whole

#: What Postgres is asked, and what that must become.
ANSWERS: dict[str, tuple[str, type[DatabaseError]]] = {
    "statement timeout": ("SET statement_timeout = 20; SELECT pg_sleep(5)", DatabaseUnavailable),
    "cancelled": ("SELECT pg_cancel_backend(pg_backend_pid()), pg_sleep(5)", DatabaseUnavailable),
    "terminated": ("SELECT pg_terminate_backend(pg_backend_pid()), pg_sleep(5)", DatabaseUnavailable),
    "read-only": (
        "SET default_transaction_read_only = on; COMMIT; DELETE FROM rival_logs",
        DatabaseUnavailable,
    ),
    "disk full": ("DO $$ BEGIN RAISE SQLSTATE '53100'; END $$", DatabaseUnavailable),
    "out of memory": ("DO $$ BEGIN RAISE SQLSTATE '53200'; END $$", DatabaseUnavailable),
    "too many connections": ("DO $$ BEGIN RAISE SQLSTATE '53300'; END $$", DatabaseUnavailable),
    "internal": ("DO $$ BEGIN RAISE SQLSTATE 'XX000'; END $$", DatabaseUnavailable),
    "privilege": ("SET ROLE pg_monitor; DELETE FROM rival_logs", DatabaseRefused),
    "constraint": ("INSERT INTO rival_orphans VALUES (NULL, NULL, NULL)", DatabaseRefused),
    "no column": ("SELECT nonsense FROM rival_runs", DatabaseRefused),
    "no table": ("SELECT 1 FROM rival_nonsense", ConfigurationError),  # type: ignore[dict-item]
    "data": ("SELECT 'x'::int", DatabaseRefused),
    "unknown": ("DO $$ BEGIN RAISE SQLSTATE 'RV001'; END $$", DatabaseRefused),
    "deadlock": ("DO $$ BEGIN RAISE SQLSTATE '40P01'; END $$", DatabaseBusy),
    "serialization": ("DO $$ BEGIN RAISE SQLSTATE '40001'; END $$", DatabaseBusy),
    "lock": ("DO $$ BEGIN RAISE SQLSTATE '55P03'; END $$", DatabaseBusy),
}


def ask(database: Database, *statements: str) -> None:
    with database.transaction() as connection:
        for one in statements:
            connection.execute(text(one))


@pytest.mark.parametrize("why", ANSWERS)
def test_each_error_of_postgres_becomes_one_of_rivals_with_no_sql_in_it(postgres_url: str, why: str) -> None:
    sql, wanted = ANSWERS[why]
    database = Database(postgres_url)
    with pytest.raises(wanted) as raised:
        ask(database, *(sql.split("; ") if "DO" not in sql else [sql]))
    database.dispose()
    assert isinstance(raised.value, DatabaseError)
    assert not {"SELECT", "FROM", "RAISE"} & set(str(raised.value).split())


def test_the_same_for_prepared_statements(postgres_url: str) -> None:
    hot = PreparedPool(postgres_url)
    for name, wanted in (("data", DatabaseRefused), ("cancelled", DatabaseUnavailable), ("no column", DatabaseRefused)):
        with pytest.raises(wanted):
            hot.fetch(Statement.of(f"test_{name[:2]}", ANSWERS[name][0]), {})
    hot.close()


def test_an_exhausted_pool_is_an_unavailable_database(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rival_client.db.database_urls.CONNECT_TIMEOUT", 0.05)
    database = Database(postgres_url, pool_size=1)
    with (
        database.autocommit(),
        database.autocommit(),
        database.autocommit(),
        pytest.raises(
            DatabaseUnavailable,
            match=whole(
                "The database at postgresql://… does not answer (QueuePool limit of size 1 overflow 2 reached, "
                "connection timed out, timeout 5.00 (Background on this error at: https://sqlalche.me/e/21/3o7r)). "
                "Check that it runs and that RIVAL_DATABASE_URL is right; `rival doctor` checks the rest."
            ),
        ),
    ):
        ask(database, "SELECT 1")
    database.dispose()


def test_sqlite_says_the_same(tmp_path: Path, file_url: str) -> None:
    database = Database(file_url)
    with pytest.raises(DatabaseRefused):
        ask(database, "SELECT nonsense FROM rival_runs")
    with pytest.raises(ConfigurationError):
        ask(database, "SELECT 1 FROM rival_nonsense")
    with pytest.raises(DatabaseUnavailable):
        ask(database, "PRAGMA query_only = on", "DELETE FROM rival_logs")
    database.dispose()
    full = Database(f"sqlite:///{tmp_path}/full.db")
    ask(full, "CREATE TABLE rival_full (x)")
    with pytest.raises(DatabaseUnavailable):
        ask(full, "PRAGMA max_page_count = 2", "INSERT INTO rival_full VALUES (zeroblob(100000))")
    full.dispose()


# -- conflicts --------------------------------------------------------------------------------------------


@contextmanager
def in_thread(work: Callable[[], Any]) -> Iterator[Future[Any]]:
    with ThreadPoolExecutor(1) as pool:
        yield pool.submit(work)


def test_a_deadlock_is_repeated_inside_the_store(pg_stage: Stage) -> None:
    claim = pg_stage.retried()
    with psycopg.connect(libpq_url(pg_stage.database.url)) as other:
        # The store's transaction is the victim: the other one does not look for deadlocks.
        other.execute("SET deadlock_timeout = '60s'")
        other.execute("SELECT 1 FROM rival_runs WHERE id = 'r' FOR UPDATE")
        with in_thread(lambda: pg_stage.store.finish_step(claim, DONE, COMPLETES, claim_for=None)) as finished:
            until_blocked(pg_stage.database)
            other.execute("SELECT 1 FROM rival_steps WHERE run_id = 'r' FOR UPDATE")
            other.commit()
            finished = finished.result(20)
    assert finished is not None
    assert finished.run_ended
    assert pg_stage.run()["status"] == "completed"


def test_a_client_that_loses_a_deadlock_cancels_all_the_same(pg_stage: Stage) -> None:
    pg_stage.begin()
    with psycopg.connect(libpq_url(pg_stage.database.url)) as other:
        other.execute("SET deadlock_timeout = '60s'")
        other.execute("SELECT 1 FROM rival_runs WHERE id = 'r' FOR UPDATE")
        with in_thread(lambda: Rival(settings=Settings(database_url=pg_stage.database.url)).cancel("r")) as cancelled:
            until_blocked(pg_stage.database)
            other.execute("SELECT 1 FROM rival_steps WHERE run_id = 'r' FOR UPDATE")
            other.commit()
            assert cancelled.result(20) is True
    assert pg_stage.run()["status"] == "cancelled"


@pytest.mark.parametrize("hot", [True, False])
def test_lock_timeouts_are_repeated_until_the_lock_is_free(pg_stage: Stage, hot: bool) -> None:
    claim = pg_stage.begin() if hot else pg_stage.retried()
    url = f"{pg_stage.database.url}{'&' if '?' in pg_stage.database.url else '?'}options=-c%20lock_timeout%3D50ms"
    store = type(pg_stage.store)(Database(url))
    with psycopg.connect(libpq_url(pg_stage.database.url)) as other:
        other.execute("LOCK TABLE rival_steps IN ACCESS EXCLUSIVE MODE")
        with in_thread(lambda: store.finish_step(claim, DONE, COMPLETES, claim_for=None)) as finished:
            time.sleep(0.3)  # for several timeouts
            assert not finished.done()
            other.commit()
            assert finished.result(20) is not None
    store.close()
    assert pg_stage.run()["status"] == "completed"


def test_a_lock_that_stays_taken_is_a_busy_database_in_the_end(
    pg_stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rival_client.db.conflict_retries.CONFLICT_TRIES", 3)
    tries: list[int] = []

    def never() -> None:
        with pg_stage.database.transaction() as connection:
            tries.append(1)
            connection.execute(text("DO $$ BEGIN RAISE SQLSTATE '55P03'; END $$"))

    with pytest.raises(
        DatabaseBusy,
        match=whole(
            "The database at postgresql://… rolled the transaction back again and again because of others "
            "(55P03). Nothing was changed: try again."
        ),
    ):
        pg_stage.database.transact(lambda _: never())
    assert len(tries) == 3
