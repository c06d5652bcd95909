"""Sleeps of flows on a real fleet: never early, in order, and for years as a row. `make bench` measures precision."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import pytest

from rival_client import Rival
from rival_client.model.step_records import Step
from tests.support.workers import Workers, wait_until

FLOWS = """
import datetime as dt
from rival_workers import flow

@flow("nap")
def nap(ctx, input):
    ctx.sleep(input)

@flow("until")
def until(ctx, input):
    ctx.sleep_until(dt.datetime.fromisoformat(input))
"""
#: In an order in which the shortest is neither the first nor the last.
NAPS = [1.6, 0.1, 1.1, 2.1, 0.6]
NEVER = dt.datetime.max.replace(tzinfo=dt.UTC)


@pytest.fixture
def fleet(workers: Workers, tmp_path: Path) -> Workers:
    file = tmp_path / "flows.py"
    file.write_text(FLOWS)
    # One thread: what is due first starts first, also when several are late.
    workers.start(file, concurrency=1)
    return workers


def woken(rival: Rival, run_id: str, workflow: str) -> Step:
    """The flow's row: `due_at` is when it was to wake, `started_at` when it did, both by the database's clock."""
    assert rival.wait(workflow, run_id, timeout=40).status == "completed"
    return next(step for step in rival.state(run_id).steps if step.path == workflow)


def is_never_early(step: Step) -> bool:
    """By the database's clock, which sets both times. Without a tolerance: it would hide an error of that size."""
    assert step.due_at is not None
    assert step.started_at is not None
    return step.started_at >= step.due_at


@pytest.mark.slow
def test_sleeps_never_end_early_and_end_in_the_order_of_their_times(rival: Rival, fleet: Workers) -> None:
    woken_up = [woken(rival, run.run_id, "nap") for run in rival.run_many("nap", NAPS)]
    assert all(map(is_never_early, woken_up))
    by_due = sorted(zip(NAPS, woken_up, strict=True), key=lambda one: one[1].due_at or NEVER)
    assert [nap for nap, _ in by_due] == sorted(NAPS)
    assert [nap for nap, _ in sorted(by_due, key=lambda one: one[1].started_at or NEVER)] == sorted(NAPS)


@pytest.mark.slow
def test_a_sleep_until_a_time_does_not_end_before_it(rival: Rival, fleet: Workers) -> None:
    when = dt.datetime.now(dt.UTC) + dt.timedelta(seconds=0.8)
    step = woken(rival, rival.run("until", when.isoformat()).run_id, "until")
    assert is_never_early(step)
    assert step.due_at is not None
    # It is kept as a length from the commit on, so it is later by what the commit takes.
    assert step.due_at >= when, "not before the time that the flow gave"


@pytest.mark.slow
def test_a_sleep_of_ten_years_is_a_row(rival: Rival, fleet: Workers) -> None:
    before = dt.datetime.now(dt.UTC)
    far = rival.run("nap", 10 * 365 * 86_400).run_id
    wait_until(lambda: rival.state(far).status == "suspended")
    due = rival.state(far).steps[0].due_at
    assert due is not None
    assert before <= due - dt.timedelta(days=3650) <= dt.datetime.now(dt.UTC)
