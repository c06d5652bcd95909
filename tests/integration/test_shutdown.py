"""SIGTERM: what runs may finish within the grace period, the rest is handed back, nothing new is begun."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest

from rival_client import Rival
from tests.support.chaos import Ledger, assert_nothing_is_stuck, start_many, wait_for_all
from tests.support.effort import long_but_first
from tests.support.workers import Workers, wait_until

POOLS = long_but_first("prefork", "threads", "solo")

TWO_STEPS = """
name = "two-steps"
steps = [step(work, name="first"), step(work, name="second")]
"""
SLOW_ONCE = """
def slow_once(run, last_step):
    nonce = note(run, last_step)
    if len(open(LEDGER).readlines()) == 1:
        time.sleep(60)
    return {"nonce": nonce, "count": 1}

name = "slow-once"
steps = [step(slow_once, max_attempts=1)]
"""


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(tmp_path / "ledger.txt")


@pytest.mark.slow
@pytest.mark.parametrize("pool", POOLS)
def test_a_running_attempt_may_finish_and_nothing_is_begun_after_it(
    rival: Rival, workers: Workers, ledger: Ledger, pool: str
) -> None:
    [worker] = workers.start(
        ledger.workflow(TWO_STEPS), pool=pool, concurrency=1, continuation_budget=60, shutdown_grace=60
    )
    [run_id] = start_many(rival, 1, "two-steps", seconds=1)
    wait_until(lambda: ledger.lines(run_id))
    began = time.monotonic()
    assert worker.terminate() == 0
    assert time.monotonic() - began < 60, "before the end of the grace period"
    first, second = rival.state(run_id).steps
    assert (first.status, first.attempts) == ("completed", 1)
    assert (second.status, second.attempts) == ("pending", 0)
    assert [line.step for line in ledger.lines(run_id)] == ["first"]

    workers.start(ledger.workflow(TWO_STEPS))
    wait_for_all(rival, [run_id])
    assert rival.result(run_id).result["count"] == 2


@pytest.mark.slow
def test_a_worker_does_not_wait_for_attempts_that_are_over(rival: Rival, workers: Workers, ledger: Ledger) -> None:
    timed_out = SLOW_ONCE.replace("max_attempts=1", "timeout=0.5")
    [worker] = workers.start(ledger.workflow(timed_out), pool="threads", concurrency=2, shutdown_grace=60)
    [run_id] = start_many(rival, 1, "slow-once")
    assert rival.wait("slow-once", run_id, timeout=60).status == "failed"
    began = time.monotonic()
    assert worker.terminate() == 0
    assert time.monotonic() - began < 30


@pytest.mark.slow
@pytest.mark.parametrize("pool", POOLS)
def test_after_the_grace_period_the_rest_is_handed_back_and_taken_at_once(
    rival: Rival, workers: Workers, ledger: Ledger, pool: str
) -> None:
    file = ledger.workflow(SLOW_ONCE)
    [leaving] = workers.start(file, pool=pool, concurrency=1, shutdown_grace=1, lease=30)
    [run_id] = start_many(rival, 1, "slow-once")
    wait_until(lambda: ledger.lines(run_id))
    workers.start(file, lease=30)
    leaving.process.send_signal(signal.SIGTERM)
    wait_until(lambda: len(ledger.lines(run_id)) == 2, what="taken by the other worker, before the lease is over")
    assert leaving.process.wait(5) == 0
    wait_for_all(rival, [run_id])
    [step] = rival.state(run_id).steps
    assert (step.status, step.attempts, step.lost) == ("completed", 1, 0)
    assert [attempt.outcome for attempt in rival.state(run_id).attempts] == ["handed_back"]
    assert_nothing_is_stuck(rival)


@pytest.mark.slow
@pytest.mark.parametrize("pool", POOLS)
def test_an_idle_worker_leaves_at_once_and_takes_its_executors_with_it(
    rival: Rival, workers: Workers, ledger: Ledger, pool: str
) -> None:
    [worker] = workers.start(ledger.workflow(TWO_STEPS), pool=pool, concurrency=2, shutdown_grace=60)
    began = time.monotonic()
    assert worker.terminate() == 0
    assert time.monotonic() - began < 60, "an idle worker has no grace period"
    with rival.database.autocommit() as connection:
        left = connection.exec_driver_sql("SELECT count(*) FROM rival_executors").scalar()
    assert left == 0
