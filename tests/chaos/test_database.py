"""Postgres crashes, restarts, and cuts every connection twice a second: outcomes are kept, none is accepted twice."""

from __future__ import annotations

import time
from pathlib import Path

import psycopg
import pytest

from rival_client import Rival
from rival_workers.dev.postgres_server import PostgresServer
from tests.support.chaos import Ledger, Producer, assert_chain_is_right, mixed_fleet, start_many, wait_for_all
from tests.support.effort import long_but_first
from tests.support.workers import Workers, wait_until


@pytest.mark.slow
def test_postgres_stopped_and_killed_and_started_again_loses_no_run_and_repeats_no_result(
    own_postgres: PostgresServer, rival: Rival, workers: Workers, ledger: Ledger
) -> None:
    mixed_fleet(workers, ledger.workflow(), {"pool": "threads"}, {"pool": "prefork", "continuation_budget": 0})
    run_ids = start_many(rival, 60, seconds=0.05)
    with Producer(rival, seconds=0.02) as producer:
        wait_until(lambda: len(ledger.lines()) > 30)
        for stop, away in ((own_postgres.stop, 0), (own_postgres.kill, 0), (own_postgres.kill, 3)):
            stop()
            time.sleep(away)  # the last time for longer than a lease
            own_postgres.start()
            time.sleep(0.5)
    wait_for_all(rival, run_ids + producer.run_ids)
    assert_chain_is_right(rival, run_ids + producer.run_ids, ledger)


@pytest.mark.long
@pytest.mark.slow
def test_an_outage_longer_than_the_lease_does_not_start_long_steps_again(
    own_postgres: PostgresServer, rival: Rival, workers: Workers, ledger: Ledger
) -> None:
    workers.start(ledger.workflow('name = "long"\nsteps = [step(work, name="only")]'), 2)
    run_ids = start_many(rival, 4, "long", seconds=6)
    wait_until(lambda: len(ledger.lines()) == 4)
    own_postgres.kill()
    time.sleep(2.5)
    own_postgres.start()
    wait_for_all(rival, run_ids)
    assert len(ledger.lines()) == 4
    assert {rival.result(run_id).status for run_id in run_ids} == {"completed"}


LOGGING = """
import time

def long(input, log):
    for number in range(60):
        log.info("line", n=number)
        time.sleep(0.05)
    return "done"

steps = [long]
"""


@pytest.mark.long
@pytest.mark.slow
def test_a_step_that_logs_through_an_outage_loses_neither_its_outcome_nor_an_entry_and_repeats_none(
    own_postgres: PostgresServer, rival: Rival, workers: Workers, tmp_path: Path
) -> None:
    (tmp_path / "logging_flow.py").write_text(LOGGING)
    workers.start(tmp_path / "logging_flow.py", lease=15)
    run_id = rival.run("logging-flow", {}).run_id
    wait_until(lambda: len(rival.logs(run_id)) > 0)
    own_postgres.kill()
    time.sleep(1.5)  # longer than entries wait
    own_postgres.start()
    wait_for_all(rival, [run_id])
    assert rival.result(run_id).result == "done"
    assert rival.state(run_id).steps[0].lost == 0
    assert [entry.fields["n"] for entry in rival.logs(run_id)] == list(range(60))


@pytest.mark.long
@pytest.mark.slow
def test_connections_cut_every_half_second_lose_no_run_and_repeat_no_result(
    own_postgres: PostgresServer, rival: Rival, workers: Workers, ledger: Ledger
) -> None:
    mixed_fleet(workers, ledger.workflow())
    run_ids = start_many(rival, 80, seconds=0.05)
    with Producer(rival, seconds=0.02) as producer, psycopg.connect(own_postgres.url, autocommit=True) as own:
        for _ in range(20):
            own.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'rival%'")
            time.sleep(0.5)
    wait_for_all(rival, run_ids + producer.run_ids)
    assert_chain_is_right(rival, run_ids + producer.run_ids, ledger)


@pytest.mark.slow
@pytest.mark.parametrize("fault", long_but_first("read-only", "revoked"))
def test_a_worker_that_starts_while_the_database_takes_no_writes_waits_for_it(
    own_postgres: PostgresServer, rival: Rival, workers: Workers, ledger: Ledger, fault: str
) -> None:
    """A worker that is started again during such a fault must not leave the fleet for it."""
    break_it, repair = {
        "read-only": ("ALTER SYSTEM SET default_transaction_read_only = on", "ALTER SYSTEM RESET ALL"),
        "revoked": ("REVOKE INSERT ON rival_workflows FROM fleet", "GRANT INSERT ON rival_workflows TO fleet"),
    }[fault]
    workers.env["RIVAL_DATABASE_URL"] = own_postgres.url.replace("//rival@", "//fleet@")
    with psycopg.connect(own_postgres.url, autocommit=True, options="-c default_transaction_read_only=off") as own:
        own.execute("CREATE ROLE fleet LOGIN")
        own.execute("GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO fleet")
        for statement in (break_it, "SELECT pg_reload_conf()"):
            own.execute(statement)
        [worker] = workers.start(ledger.workflow(), wait=False)
        worker.wait_for_line("… waiting for the database: …")
        for statement in (repair, "SELECT pg_reload_conf()"):
            own.execute(statement)
    worker.wait_ready()
    run_ids = start_many(rival, 2)
    wait_for_all(rival, run_ids)
    assert_chain_is_right(rival, run_ids, ledger)
