"""Singletons and dead letters on a fleet whose workers are killed."""

from __future__ import annotations

from pathlib import Path

import pytest
from sqlalchemy import select

from rival_client import DeadLetterFilter, Rival
from rival_client.db.run_tables import runs
from tests.chaos.test_limits import intervals, most_at_once
from tests.support.chaos import Ledger, assert_nothing_is_stuck, wait_for_all
from tests.support.limits import assert_gates_are_consistent
from tests.support.workers import Workers, wait_until

ALONE = """
name = "alone"
steps = [step(work, name="first"), step(work, name="second")]
"""
#: Every call fails until the service is up.
CALLS = """
from rival_workers import limit

class NoInput:
    result = None

def call(run):
    note(run, NoInput)
    time.sleep(0.05)
    if not os.path.exists(UP):
        raise ConnectionError("down")
    return "done"

name = "calls"
steps = [step(call, concurrency_limit=limit("three", 3), on_failure="dead_letter", max_retries=9, backoff="none",
              retry_budget=1)]
"""


@pytest.mark.slow
def test_runs_with_one_singleton_key_never_overlap_while_workers_are_killed(
    rival: Rival, workers: Workers, ledger: Ledger
) -> None:
    file = ledger.workflow(ALONE)
    fleet = workers.start(file, 2, concurrency=4, lease=2)
    run_ids = []
    for number in range(24):
        key = f"k{number % 2}"
        run_ids.append(rival.run("alone", {"seconds": 0.05}, singleton=key, on_conflict="queue").run_id)
        if number == 12:
            fleet[0].kill()
            workers.start(file, 1, concurrency=4, lease=2)
    wait_for_all(rival, run_ids)
    columns = select(runs.c.id, runs.c.started_at, runs.c.completed_at)
    with rival.database.autocommit() as connection:
        found = {
            row.id: (row.started_at.timestamp(), row.completed_at.timestamp()) for row in connection.execute(columns)
        }
    for key in (0, 1):
        assert most_at_once([found[run_id] for run_id in run_ids[key::2]]) == 1
    assert_gates_are_consistent(rival.database, at_rest=True)
    assert_nothing_is_stuck(rival)


@pytest.mark.slow
def test_dead_letters_are_redriven_within_their_limit_while_a_worker_is_killed(
    rival: Rival, workers: Workers, ledger: Ledger, tmp_path: Path
) -> None:
    up = tmp_path / "up"
    file = ledger.workflow(CALLS.replace("UP", repr(str(up))))
    fleet = workers.start(file, 2, concurrency=6, lease=2)
    run_ids = [one.run_id for one in rival.run_many("calls", [{}] * 30)]
    wait_until(lambda: len(rival.dead_letters()) == 30, 60, "the dead letters")
    assert {rival.result(run_id).error["type"] for run_id in run_ids} == {"RetryBudgetSpent"}  # type: ignore[index]
    up.touch()
    assert len(rival.redrive(DeadLetterFilter(workflow="calls"), rate=1000).done) == 30
    fleet[0].kill()
    wait_for_all(rival, run_ids)
    assert {rival.result(run_id).result for run_id in run_ids} == {"done"}
    assert rival.dead_letters() == []
    assert most_at_once(intervals(rival, "call")) <= 3
    assert_gates_are_consistent(rival.database, at_rest=True)


#: A step that has a compensation, and one that lasts longer than the deadline of the run.
TRIP = """
class NoInput:
    result = None

def reserve(run):
    note(run, NoInput)
    return "12A"

def release(run, result):
    note(run, NoInput)
    return f"released {result}"

def hang(run):
    note(run, NoInput)
    time.sleep(60)

name = "trip"
steps = [step(reserve, compensate=release), hang]
"""
#: The hooks write into the ledger, under their own names.
CALLED = """
class NoInput:
    result = None

def called(event):
    class run:
        run_id, step, attempt = event.run_id, event.hook, event.attempt
    note(run, NoInput)

name = "called"
hooks = {"before_attempt": called, "on_checkpoint": called, "on_success": called, "on_end": called}
steps = [step(work, name="first"), step(work, name="second")]
"""
HOOKS = {"before_attempt": 2, "on_checkpoint": 2, "on_success": 1, "on_end": 1}


@pytest.mark.slow
def test_a_run_whose_worker_is_frozen_ends_by_its_deadline_and_is_undone(
    rival: Rival, workers: Workers, ledger: Ledger
) -> None:
    file = ledger.workflow(TRIP)
    [frozen] = workers.start(file, concurrency=4, lease=60)
    run_ids = [rival.run("trip", deadline=6).run_id for _ in range(4)]
    wait_until(lambda: len(ledger.lines(step="hang")) == 4, 20, "the steps that hang")
    frozen.freeze()
    workers.start(file, concurrency=4, lease=60)
    wait_for_all(rival, run_ids)
    for run_id in run_ids:
        state = rival.state(run_id)
        assert (state.error or {})["type"] == "DeadlineExceeded"
        assert state.completed_at is not None
        assert state.deadline_at is not None
        assert state.completed_at >= state.deadline_at
        ended = {one.path: (one.status, one.result) for one in state.steps}
        assert ended["hang"] == ("cancelled", None), "it does not wait for the lease of the frozen worker"
        assert ended["reserve!compensate"] == ("completed", "released 12A")
        assert len(ledger.lines(run_id, "hang")) == len(ledger.lines(run_id, "reserve!compensate")) == 1
    assert_nothing_is_stuck(rival)


@pytest.mark.slow
def test_a_worker_that_is_killed_after_a_commit_calls_no_hook_twice(
    rival: Rival, workers: Workers, ledger: Ledger
) -> None:
    file = ledger.workflow(CALLED)
    [doomed] = workers.start(file, concurrency=1, lease=2, failpoint="after_finish_commit")
    run_ids = [rival.run("called", {}).run_id for _ in range(4)]
    assert doomed.process.wait(20) < 0
    assert not ledger.lines(step="on_checkpoint"), "it died between the commit and the hook"
    workers.start(file, 2, lease=2)
    wait_for_all(rival, run_ids)
    wait_until(lambda: len(ledger.lines(step="on_end")) >= 3, 20, "the hooks of the others")
    called = {run_id: [line.step for line in ledger.lines(run_id)] for run_id in run_ids}
    for hooks in called.values():
        assert all(hooks.count(hook) <= most for hook, most in HOOKS.items())
    assert sum(hooks.count("on_checkpoint") == 2 for hooks in called.values()) == 3, "only one run has lost one"
