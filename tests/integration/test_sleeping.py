"""How precisely flows wake on a real fleet: from milliseconds on; and what sleeps for years is a row."""

from __future__ import annotations

import datetime as dt
import statistics
from pathlib import Path

import pytest

from rival_client import Rival
from rival_client.records import Step
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
NAPS = [0.3 + 1.2 * n / 19 for n in range(20)]


@pytest.fixture
def fleet(workers: Workers, tmp_path: Path) -> Workers:
    file = tmp_path / "flows.py"
    file.write_text(FLOWS)
    workers.start(file, concurrency=8)
    return workers


def woken(rival: Rival, run_id: str, workflow: str) -> Step:
    """The flow's row: `due_at` is when it was to wake, `started_at` when it did, both by the database's clock."""
    assert rival.wait(workflow, run_id, timeout=20).status == "completed"
    return next(step for step in rival.state(run_id).steps if step.path == workflow)


def lateness(step: Step) -> float:
    assert step.due_at is not None
    assert step.started_at is not None
    return (step.started_at - step.due_at).total_seconds()


@pytest.mark.slow
def test_a_sleep_is_precise_to_50_ms_while_a_fleet_is_up(rival: Rival, fleet: Workers) -> None:
    assert woken(rival, rival.run("nap", 0.01).run_id, "nap").due_at is not None
    started = rival.run_many("nap", NAPS)
    late = [lateness(woken(rival, run.run_id, "nap")) for run in started]
    assert min(late) >= -0.006, "never before its time"
    assert statistics.median(late) < 0.05, late
    # One may be unlucky on a machine that is busy with other things.
    assert max(late) < 0.5, late

    when = dt.datetime.now(dt.UTC) + dt.timedelta(seconds=0.8)
    step = woken(rival, rival.run("until", when.isoformat()).run_id, "until")
    assert step.due_at is not None
    assert abs((step.due_at - when).total_seconds()) < 0.25, "the database's clock decides, the time is the flow's"
    assert lateness(step) < 0.5

    far = rival.run("nap", 10 * 365 * 86_400).run_id
    wait_until(lambda: rival.state(far).status == "suspended")
    due = rival.state(far).steps[0].due_at
    assert due is not None
    assert due.year - dt.datetime.now(dt.UTC).year in (9, 10)
