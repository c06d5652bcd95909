"""Schedules on the lab's clock: ticks are fired in the order of time, as soon as it passes."""

from __future__ import annotations

import datetime as dt
from typing import Any

from rival_workers import create_workflow
from rival_workers.testing import Lab

START = dt.datetime(2026, 3, 27, 12, 0, tzinfo=dt.UTC)


def clean(input: Any) -> Any:
    return input


def test_a_nightly_workflow_runs_once_a_night_through_the_change_of_the_clock() -> None:
    nightly = create_workflow("nightly").step(clean).schedule("0 2 * * *", timezone="Europe/Berlin", input={"x": 1})
    with Lab(start=START) as lab:
        lab.register(nightly)
        lab.advance(dt.timedelta(days=3))
        runs = lab.rival.runs()
        assert [run.run_id for run in reversed(runs)] == [
            "nightly@2026-03-28T01:00:00Z",
            "nightly@2026-03-29T01:00:00Z",
            "nightly@2026-03-30T00:00:00Z",
        ]
        assert {(run.status, run.result["x"]) for run in runs} == {("completed", 1)}


def test_a_schedule_of_a_producer_runs_until_it_is_removed() -> None:
    with Lab(start=START) as lab:
        lab.register([clean], name="clean")
        lab.rival.schedule("clean", dt.timedelta(minutes=10), name="often", input="a")
        lab.advance(3600)
        assert len(lab.rival.runs(status="completed")) == 6
        lab.rival.unschedule("often")
        lab.advance(3600)
        assert len(lab.rival.runs()) == 6


def test_a_run_that_takes_long_is_not_a_reason_to_leave_out_ticks() -> None:
    with Lab(start=START) as lab:
        lab.register(create_workflow("slow").delay("pause", hours=2).step(clean).schedule(3600))
        lab.advance(4 * 3600 + 60)
        assert [run.status for run in lab.rival.runs()] == ["suspended", "suspended", "completed", "completed"]
