"""Postgres crashes, restarts, and cuts every connection twice a second: outcomes are kept, none is accepted twice."""

from __future__ import annotations

import time
from collections.abc import Callable

import psycopg
import pytest

from rival_client import Rival
from rival_workers.dev.servers import PostgresServer
from tests.support.chaos import Ledger, Producer, assert_chain_is_right, start_many, wait_for_all
from tests.support.workers import Workers, wait_until

Stop = Callable[[PostgresServer], None]


@pytest.mark.slow
@pytest.mark.parametrize("stop", [PostgresServer.stop, PostgresServer.kill], ids=["stopped", "killed"])
def test_a_postgres_restart_loses_no_run_and_repeats_no_result(
    own_postgres: PostgresServer, rival: Rival, workers: Workers, ledger: Ledger, stop: Stop
) -> None:
    file = ledger.workflow()
    for pool in ("threads", "prefork"):
        workers.start(file, pool=pool, concurrency=2, wait=False)
    for worker in workers.all:
        worker.wait_ready()
    run_ids = start_many(rival, 60, seconds=0.05)
    with Producer(rival, seconds=0.02) as producer:
        for away in (0, 3):  # the second time for longer than a lease
            wait_until(lambda: len(ledger.lines()) > 30)
            stop(own_postgres)
            time.sleep(away)
            own_postgres.start()
            time.sleep(0.5)
    wait_for_all(rival, run_ids + producer.run_ids)
    assert_chain_is_right(rival, run_ids + producer.run_ids, ledger)


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


@pytest.mark.slow
@pytest.mark.parametrize("budget", [1, 0], ids=["continuation", "message-per-attempt"])
def test_connections_cut_every_half_second_lose_no_run_and_repeat_no_result(
    own_postgres: PostgresServer, rival: Rival, workers: Workers, ledger: Ledger, budget: int
) -> None:
    workers.start(ledger.workflow(), 2, continuation_budget=budget)
    run_ids = start_many(rival, 80, seconds=0.05)
    with Producer(rival, seconds=0.02) as producer, psycopg.connect(own_postgres.url, autocommit=True) as own:
        for _ in range(20):
            own.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'rival%'")
            time.sleep(0.5)
    wait_for_all(rival, run_ids + producer.run_ids)
    assert_chain_is_right(rival, run_ids + producer.run_ids, ledger)
