"""Fallbacks, circuit breakers, dead letters and budgets on a fleet, some of whose workers are killed."""

from __future__ import annotations

import pytest
from sqlalchemy import text

from rival_client import DeadLetterFilter, Rival
from tests.support.chaos import Ledger, assert_nothing_is_stuck, mixed_fleet, start_many, wait_for_all
from tests.support.effort import long_but_first
from tests.support.workers import Workers, wait_until

#: `charge` always fails, and falls back to a function.
PAY = """
class NoInput:
    result = None

def charge(run):
    note(run, NoInput)
    raise ValueError("closed")

def instead(run, error):
    note(run, NoInput)
    return error["message"]

def after(run, steps):
    return [steps.charge.status, steps.charge.result]

name = "pay"
steps = [step(charge, fallback=instead), after]
"""

#: A breaker that opens with the first failure. The probe of a run with "slow" takes long.
ASK = """
from rival_workers import breaker, default

class NoInput:
    result = None

def ask(run, input):
    note(run, NoInput)
    time.sleep(input.get("seconds", 0))
    if input.get("fails"):
        raise ValueError("busy")
    return "answer"

name = "ask"
steps = [step(ask, circuit_breaker=breaker("b", failures=1, reset=600, on_open=ON_OPEN), on_failure="dead_letter")]
"""


@pytest.mark.slow
def test_a_worker_that_dies_between_a_failure_and_its_fallback_loses_nothing(
    rival: Rival, workers: Workers, ledger: Ledger
) -> None:
    file = ledger.workflow(PAY)
    [doomed] = workers.start(file, concurrency=1, continuation_budget=0, failpoint="after_finish_commit")
    run_ids = start_many(rival, 4, "pay")
    assert doomed.process.wait(20) < 0
    assert not ledger.lines(step="charge!fallback")
    workers.start(file, 2)
    wait_for_all(rival, run_ids)
    for run_id in run_ids:
        assert rival.result(run_id).result == ["completed", "closed"]
        assert len(ledger.lines(run_id, "charge")) == len(ledger.lines(run_id, "charge!fallback")) == 1
    assert_nothing_is_stuck(rival)


@pytest.mark.slow
def test_a_fleet_falls_back_once_for_each_failure(rival: Rival, workers: Workers, ledger: Ledger) -> None:
    mixed_fleet(workers, ledger.workflow(PAY))
    run_ids = start_many(rival, 20, "pay")
    wait_for_all(rival, run_ids)
    assert {tuple(rival.result(run_id).result) for run_id in run_ids} == {("completed", "closed")}
    assert len(ledger.lines(step="charge!fallback")) == 20


@pytest.mark.slow
def test_a_breaker_that_one_worker_opens_stops_the_others_and_a_killed_probe_is_replaced(
    rival: Rival, workers: Workers, ledger: Ledger
) -> None:
    file = ledger.workflow(ASK.replace("ON_OPEN", "'fail'"))
    fleet = workers.start(file, 2, concurrency=2, lease=2)
    assert rival.run("ask", {"fails": True}, "first").wait(20).status == "failed"
    assert [rival.run("ask", {}).wait(20).error["type"] for _ in range(4)] == ["BreakerOpen"] * 4  # type: ignore[index]
    assert len(rival.dead_letters(DeadLetterFilter(error="BreakerOpen"))) == 4
    # As if the time were up: the next attempt probes.
    rival.open_breaker("b", seconds=0)
    rival.run("ask", {"seconds": 60}, "probe")
    wait_until(lambda: bool(ledger.lines("probe")))
    victim = ledger.lines("probe")[-1].pid
    next(worker for worker in fleet if worker.pid == victim).kill()
    # The step of the probe is taken over, or another one comes first: either probes, after the lease.
    wait_until(lambda: len(ledger.lines("probe")) == 2 or rival.run("ask", {}).wait(20).status == "completed", 20)


@pytest.mark.slow
@pytest.mark.parametrize("point", long_but_first("after_breaker_commit", "after_claim_commit", "after_finish_commit"))
def test_steps_that_wait_for_a_breaker_run_although_the_worker_that_closes_it_is_killed(
    rival: Rival, workers: Workers, ledger: Ledger, point: str
) -> None:
    """Their own times are ten minutes away: they run because each that succeeds calls others, and the sweep goes on
    where that ends. The worker dies after it has closed the breaker, before anything is published, or before that."""
    file = ledger.workflow(ASK.replace("ON_OPEN", "'wait'"))
    [opener] = workers.start(file, concurrency=2, lease=2)
    assert rival.run("ask", {"fails": True}, "first").wait(20).status == "failed"
    run_ids = start_many(rival, 8, "ask")
    wait_until(lambda: _count(rival, "SELECT count(*) FROM rival_breaker_waits") == 8, 20)
    opener.kill()
    [doomed] = workers.start(file, concurrency=1, lease=2, failpoint=point)
    rival.open_breaker("b", seconds=0)
    assert doomed.process.wait(20) < 0
    [breaker] = rival.breakers()
    assert breaker.state == ("open" if point == "after_claim_commit" else "closed")
    assert sum(rival.state(run_id).is_terminal for run_id in run_ids) <= 1
    workers.start(file, 2, concurrency=2, lease=2)
    wait_for_all(rival, run_ids, 60)
    assert {rival.result(run_id).result for run_id in run_ids} == {"answer"}
    assert len(ledger.lines()) <= 1 + len(run_ids) + 1, "only the step of the killed worker was called twice"
    assert rival.breakers()[0].state == "closed"
    assert _count(rival, "SELECT count(*) FROM rival_breaker_waits") == 0
    assert_nothing_is_stuck(rival)


def _count(rival: Rival, query: str) -> int:
    with rival.database.autocommit() as connection:
        return int(connection.scalar(text(query)) or 0)
