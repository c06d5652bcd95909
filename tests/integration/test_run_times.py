"""Delayed runs and deadlines on a real fleet, also after the worker was killed."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

from rival_client import Rival
from rival_client.model.timers import EARLY
from tests.support.workers import Workers, wait_until

SLOW = """
import time

def forever(ctx):
    open(ctx.input["file"], "a").write(f"{ctx.remaining:.0f}\\n")
    time.sleep(60)

def report(error, input):
    open(input["file"], "a").write(error["type"] + "\\n")

steps = [forever]
on_error = report
"""
QUICK = """
def go(run):
    return run.labels

steps = [go]
"""


def test_a_run_begins_at_its_time_and_ends_by_its_deadline(rival: Rival, workers: Workers, tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text(SLOW)
    (tmp_path / "quick.py").write_text(QUICK)
    workers.start(tmp_path, concurrency=4)
    at = dt.datetime.now(dt.UTC) + dt.timedelta(seconds=2)
    slow = rival.run("slow", {"file": str(tmp_path / "reported")}, deadline=3)
    early = [rival.run("quick", labels={"n": 1}, delay=2), rival.run("quick", labels={"n": 1}, scheduled_at=at)]
    for one in early:
        assert one.get(timeout=30) == {"n": "1"}
        state = one.state()
        assert state.started_at is not None
        assert state.due_at is not None
        assert state.started_at >= state.due_at - dt.timedelta(seconds=EARLY)
    result = slow.wait(timeout=30)
    assert (result.status, (result.error or {})["type"], result.failed_step) == (
        "failed",
        "DeadlineExceeded",
        "forever",
    )
    assert (tmp_path / "reported").read_text().split() == ["3", "DeadlineExceeded"]


def test_a_keeper_applies_the_deadline_when_the_worker_was_killed(
    rival: Rival, workers: Workers, tmp_path: Path
) -> None:
    (tmp_path / "slow.py").write_text(SLOW)
    [first] = workers.start(tmp_path, concurrency=1)
    slow = rival.run("slow", {"file": str(tmp_path / "reported")}, deadline=4)
    wait_until((tmp_path / "reported").exists)
    first.kill()
    workers.start(tmp_path, concurrency=4)
    result = slow.wait(timeout=30)
    assert (result.status, (result.error or {})["type"]) == ("failed", "DeadlineExceeded")
