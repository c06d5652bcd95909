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

class Nobody:
    result = None

def call(run):
    note(run, Nobody)
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
