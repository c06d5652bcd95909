"""kill -9 while runs are being undone: each compensation runs at least once and ends once, in its order."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from rival_client import Rival
from tests.support.chaos import Ledger, assert_nothing_is_stuck, mixed_fleet, start_many, wait_for_all
from tests.support.effort import long_but_first
from tests.support.workers import Workers, wait_until

#: All is done, and then undone: nothing of it before the gate is open.
SAGA = """
from rival_workers import for_each

class NoInput:
    result = None

def act(run):
    note(run, NoInput)
    return run.step

def gated(run):
    note(run, NoInput)
    if not os.path.exists(LEDGER + ".open"):
        raise StepError("not yet", behavior="retry")

def slowly(run):
    note(run, NoInput)
    time.sleep(0.05)

def fails(run):
    raise ValueError("no")

def items():
    return range(3)

def on_error(run):
    note(run, NoInput)

name = "saga"
steps = [
    step(act, name="a", compensate=act), step(act, name="b", compensate=slowly),
    for_each("all", items=items, do=[step(act, name="c", compensate=act)]),
    step(act, name="d", compensate=gated, max_attempts=1000, base_delay=0.1, max_delay=0.1),
    step(fails, name="last"),
]
"""
UNDONE = ["d", "all[2]/c", "all[1]/c", "all[0]/c", "b", "a"]
COMPENSATIONS = [f"{path}!compensate" for path in UNDONE]


def brought_to_the_gate(rival: Rival, workers: Workers, file: Path, ledger: Ledger, count: int = 6) -> list[str]:
    """Runs of which nothing is undone yet, and no worker that continues them."""
    [worker] = workers.start(file, concurrency=3)
    run_ids = start_many(rival, count, "saga")
    wait_until(lambda: all(ledger.lines(run_id, "d!compensate") for run_id in run_ids))
    worker.kill()
    return run_ids


def open_gate(ledger: Ledger) -> None:
    Path(f"{ledger.path}.open").touch()


def assert_all_is_undone(rival: Rival, run_ids: list[str], ledger: Ledger) -> None:
    for run_id in run_ids:
        state = rival.state(run_id)
        rows = {step.path: step for step in state.steps}
        assert (state.status, state.failed_step) == ("failed", "last")
        assert {path: rows[path].status for path in COMPENSATIONS} == dict.fromkeys(COMPENSATIONS, "completed")
        assert (rows["!compensate"].status, rows["!on_error"].status) == ("completed", "completed")
        ran = [line.step for line in ledger.lines(run_id) if line.step.endswith("!compensate")]
        assert list(dict.fromkeys(ran)) == COMPENSATIONS, "in their order"
        for path in COMPENSATIONS[1:]:
            assert 1 <= ran.count(path) <= 1 + rows[path].lost, path
        ended = Counter(entry.path for entry in rival.history(run_id) if entry.what == "completed")
        assert {path: ended[path] for path in COMPENSATIONS} == dict.fromkeys(COMPENSATIONS, 1)
    assert_nothing_is_stuck(rival)


@pytest.mark.slow
@pytest.mark.parametrize("point", long_but_first("after_finish_commit", "after_claim_commit", "after_retry_commit"))
def test_a_worker_that_dies_while_runs_are_undone_leaves_nothing_undone_out(
    rival: Rival, workers: Workers, ledger: Ledger, point: str
) -> None:
    file = ledger.workflow(SAGA)
    run_ids = brought_to_the_gate(rival, workers, file, ledger)
    [doomed] = workers.start(file, concurrency=3, failpoint=point)
    if point != "after_retry_commit":
        open_gate(ledger)
    assert doomed.process.wait(20) < 0
    open_gate(ledger)
    workers.start(file, concurrency=3)
    wait_for_all(rival, run_ids)
    assert_all_is_undone(rival, run_ids, ledger)


@pytest.mark.slow
def test_a_fleet_that_loses_workers_in_the_middle_of_compensations_undoes_all(
    rival: Rival, workers: Workers, ledger: Ledger
) -> None:
    open_gate(ledger)
    fleet = mixed_fleet(workers, ledger.workflow(SAGA))
    run_ids = start_many(rival, 10, "saga")
    wait_until(lambda: len(ledger.lines(step="b!compensate")) >= 2)
    victim = ledger.lines(step="b!compensate")[-1].pid
    next(worker for worker in fleet if worker.pid == victim).kill()
    wait_for_all(rival, run_ids)
    assert_all_is_undone(rival, run_ids, ledger)


#: Two steps, and a wait in which the run is cancelled.
CANCELLED = """
from rival_workers import wait_event_step

class NoInput:
    result = None

def act(run):
    note(run, NoInput)
    return run.step

name = "saga"
compensate_on_cancel = True
steps = [
    step(act, name="a", compensate=act), step(act, name="b", compensate=act),
    wait_event_step("never", name="wait", key="1"),
]
"""


@pytest.mark.slow
@pytest.mark.parametrize("point", long_but_first("after_claim_commit", "after_finish_commit"))
def test_a_worker_that_dies_between_a_cancel_and_the_compensations_leaves_nothing_undone_out(
    rival: Rival, workers: Workers, ledger: Ledger, point: str
) -> None:
    """It dies when it has claimed the row that ends the run, or when it has committed what is undone first."""
    file = ledger.workflow(CANCELLED)
    [worker] = workers.start(file, concurrency=3)
    run_ids = start_many(rival, 6, "saga")
    wait_until(lambda: all(rival.state(run_id).status == "suspended" for run_id in run_ids))
    worker.kill()
    assert all(rival.cancel(run_id) for run_id in run_ids)
    [doomed] = workers.start(file, concurrency=3, failpoint=point)
    assert doomed.process.wait(20) < 0
    workers.start(file, concurrency=3)
    wait_for_all(rival, run_ids)
    for run_id in run_ids:
        state = rival.state(run_id)
        rows = {step.path: step for step in state.steps}
        assert (state.status, rows["!cancel"].status, rows["!compensate"].status) == (
            "cancelled",
            "completed",
            "completed",
        )
        ran = [line.step for line in ledger.lines(run_id) if line.step.endswith("!compensate")]
        assert list(dict.fromkeys(ran)) == ["b!compensate", "a!compensate"], "in their order"
        for path in ("b!compensate", "a!compensate"):
            assert 1 <= ran.count(path) <= 1 + rows[path].lost, path
        assert [entry.what for entry in rival.history(run_id) if entry.path is None].count("cancelled") == 1
    assert_nothing_is_stuck(rival)
