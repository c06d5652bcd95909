"""Schedules on a real fleet: no beat process, any number of workers, one run per tick."""

from __future__ import annotations

import datetime as dt
import re
from pathlib import Path

from rival_client import Rival
from tests.support.workers import Workers, wait_until

EVERY_SECOND = """
def tick():
    return 1

schedule = 1
steps = [tick]
"""
UNSCHEDULED = EVERY_SECOND.replace("schedule = 1", "")


def ticks(rival: Rival) -> list[dt.datetime]:
    ids = [run.run_id for run in rival.runs(workflow="every-second", limit=500)]
    return sorted(dt.datetime.fromisoformat(run_id.removeprefix("every-second@")) for run_id in ids)


def test_two_workers_start_exactly_one_run_per_tick(rival: Rival, workers: Workers, tmp_path: Path) -> None:
    (tmp_path / "every_second.py").write_text(EVERY_SECOND)
    workers.start(tmp_path, 2, concurrency=2)
    wait_until(lambda: len(rival.runs(status="completed", limit=500)) >= 6, 30, "six ticks")
    assert rival.unschedule("every-second")
    found = ticks(rival)
    assert found == [found[0] + dt.timedelta(seconds=n) for n in range(len(found))]
    runs = rival.runs(limit=500)
    assert all(re.fullmatch(r"every-second@\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", run.run_id) for run in runs)
    late = [(run.created_at - tick).total_seconds() for run, tick in zip(reversed(runs), found, strict=True)]
    assert min(late) >= 0
    wait_until(lambda: {run.status for run in rival.runs(limit=500)} == {"completed"}, 15, "all have ended")


def test_a_schedule_that_is_taken_out_of_the_file_is_taken_out_of_the_table(
    rival: Rival, workers: Workers, tmp_path: Path
) -> None:
    file = tmp_path / "every_second.py"
    file.write_text(EVERY_SECOND.replace("schedule = 1", "schedule = 3600"))
    workers.start(tmp_path, concurrency=1, reload=True)
    rival.schedule("every-second", 7200, name="by-hand")
    assert [(one.name, one.own) for one in rival.schedules()] == [("by-hand", False), ("every-second", True)]
    file.write_text(UNSCHEDULED)
    wait_until(lambda: [one.name for one in rival.schedules()] == ["by-hand"], 15, "the file's own is gone")
