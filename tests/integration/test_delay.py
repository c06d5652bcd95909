"""A delay on a real fleet: it is kept, and while it lasts its worker is free."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

from rival_client import Rival
from tests.support.workers import Workers

DELAYED = """
from rival_workers import delay_step

def first():
    return 1

def last():
    return 2

steps = [first, delay_step(seconds=4, name="pause"), last]
"""
QUICK = """
def go():
    return 3

steps = [go]
"""


def test_no_worker_is_occupied_by_a_delay(rival: Rival, workers: Workers, tmp_path: Path) -> None:
    (tmp_path / "delayed.py").write_text(DELAYED)
    (tmp_path / "quick.py").write_text(QUICK)
    # One worker with one pair of hands.
    workers.start(tmp_path, pool="solo", concurrency=1)
    delayed = [rival.run("delayed").run_id for _ in range(10)]
    assert rival.wait("quick", rival.run("quick").run_id, timeout=15).result == 3
    pauses = [step for run_id in delayed for step in rival.state(run_id).steps if step.path == "pause"]
    assert {(pause.status, pause.executor) for pause in pauses} == {("waiting", None)}
    assert [rival.wait("delayed", run_id, timeout=15).result for run_id in delayed] == [2] * 10
    for run_id in delayed:
        pause, last = rival.state(run_id).steps[1:]
        assert pause.due_at is not None
        assert last.created_at >= pause.due_at >= pause.created_at + dt.timedelta(seconds=4)
