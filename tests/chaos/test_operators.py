"""Operators act on a real fleet while it moves a fan-out, a join, a flow and events: no deadlock, nothing is stuck, and
a paused run stands still until it is resumed.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest
from sqlalchemy import select

from rival_client import NotPossible, Rival
from rival_client.db.database_urls import libpq_url
from rival_client.db.run_tables import steps
from tests.support.chaos import assert_nothing_is_stuck, mixed_fleet, wait_for_all
from tests.support.threads import join_all
from tests.support.workers import Workers, wait_until

WORKFLOWS = """
import time
from rival_workers import create_workflow, flow, for_each, parallel, step, wait_event_step

def two(): return 2
def slowly(): time.sleep(0.02)

create_workflow("fan-out").step(for_each(
    "f", items=lambda: list(range(40)), do=[step(slowly, name="a"), step(two, name="b")], concurrency=8
)).step(two, name="last").register()
create_workflow("join").step(parallel(
    "p", [step(slowly, name="x"), step(slowly, name="y"), wait_event_step("go", name="w")]
)).step(two, name="last").register()
create_workflow("child").step(slowly).register()

@flow("flow")
def moves(ctx):
    for _ in range(5):
        ctx.step(slowly)
    ctx.call("child", {})
    ctx.await_event("go")
    return ctx.step(two)
"""
NAMES = ["fan-out", "join", "flow"]
#: Of each operator.
OPERATIONS = 25


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "operated.py"
    path.write_text(WORKFLOWS)
    return path


def start(rival: Rival) -> list[str]:
    return [rival.run(name, {}, run_id=f"{name}-{n}").run_id for name in NAMES for n in range(2)]


def deadlocks(rival: Rival) -> int:
    question = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
    with psycopg.connect(libpq_url(rival.database.url), autocommit=True) as connection:
        [count] = connection.execute(question).fetchone() or (0,)
    return int(count)


def finish(rival: Rival, run_ids: list[str]) -> None:
    """Every run is resumed, and gets an event whenever it waits for one."""

    def ended() -> bool:
        still = [run_id for run_id in run_ids if not rival.state(run_id).is_terminal]
        for run_id in still:
            rival.resume(run_id)
        if still:
            rival.send_event("go", 1, delivery="all")
        return not still

    wait_until(ended, 60, "all runs end")


def paths(rival: Rival, run_id: str) -> list[str]:
    with rival.database.autocommit() as connection:
        return list(connection.scalars(select(steps.c.path).where(steps.c.run_id == run_id))) or ["last"]


class Operator(threading.Thread):
    """Applies every verb in turn to runs that it chooses; a refusal is an answer, any other error fails the test."""

    def __init__(self, rival: Rival, run_ids: list[str], seed: int) -> None:
        super().__init__(daemon=True)
        self._rival, self._run_ids, self._dice = rival, run_ids, random.Random(seed)
        self.errors: list[Exception] = []

    def run(self) -> None:
        verbs = self._verbs()
        for number in range(OPERATIONS):
            try:
                verbs[number % len(verbs)](self._dice.choice(self._run_ids))
            except NotPossible:
                continue
            except Exception as error:
                self.errors.append(error)

    def _verbs(self) -> list[Callable[[str], Any]]:
        rival, why = self._rival, {"reason": "a test"}
        return [
            rival.pause,
            lambda run_id: rival.rewind(run_id, self._dice.choice(paths(rival, run_id))),
            rival.resume,
            lambda run_id: rival.skip(run_id, self._dice.choice(paths(rival, run_id)), **why),
            lambda run_id: rival.send_event("go", 1, delivery="all"),
            rival.cancel,
            rival.retry,
            lambda run_id: rival.set_result(run_id, self._dice.choice(paths(rival, run_id)), [1], **why),
        ]


@pytest.mark.slow
def test_every_verb_beside_a_fleet_never_deadlocks_and_leaves_nothing_stuck(
    rival: Rival, workers: Workers, file: Path
) -> None:
    before = deadlocks(rival)
    mixed_fleet(workers, file)
    run_ids = start(rival)
    operators = [Operator(rival, run_ids, seed) for seed in range(3)]
    for operator in operators:
        operator.start()
    for operator in operators:
        join_all([operator], 60)
        assert operator.errors == []
    finish(rival, run_ids)
    wait_for_all(rival, [run.run_id for run in rival.runs(limit=1000)])
    assert_nothing_is_stuck(rival)
    assert deadlocks(rival) == before


@pytest.mark.slow
def test_runs_that_are_paused_stand_still_on_a_fleet_and_end_right_when_resumed(
    rival: Rival, workers: Workers, file: Path
) -> None:
    mixed_fleet(workers, file)
    run_ids = start(rival)
    wait_until(lambda: all(rival.state(run_id).started_at for run_id in run_ids), 30, "all have begun")
    paused = [run_id for run_id in run_ids if rival.pause(run_id)]
    assert len(paused) >= 4, "joins and flows wait for their event"
    rival.send_event("go", 1, delivery="all")
    # Attempts that run end; nothing begins after them.
    wait_until(lambda: not any(running(rival, run_id) for run_id in paused), 30, "what runs ends")
    claims = {run_id: claimed(rival, run_id) for run_id in paused}
    other = rival.run("child", {}).run_id
    assert rival.wait(other, timeout=30).status == "completed", "the fleet works"
    assert {run_id: claimed(rival, run_id) for run_id in paused} == claims
    assert not [run_id for run_id in paused if rival.state(run_id).is_terminal]
    assert all(rival.resume(run_id) for run_id in paused)
    finish(rival, run_ids)
    assert {run_id: rival.state(run_id).status for run_id in run_ids} == dict.fromkeys(run_ids, "completed")
    assert [rival.result(f"{name}-0").result for name in NAMES] == [2, 2, 2]
    assert_nothing_is_stuck(rival)


def running(rival: Rival, run_id: str) -> list[str]:
    return [step.path for step in rival.state(run_id).steps if step.status == "running" and not step.is_composite]


def claimed(rival: Rival, run_id: str) -> int:
    return sum(entry.what == "claimed" for entry in rival.history(run_id))
