"""Retries of flows on a fleet of two workers: either of them may do the part that is repeated."""

from __future__ import annotations

from collections import Counter
from functools import partial
from pathlib import Path

import pytest

from rival_client import Rival
from tests.support.chaos import assert_nothing_is_stuck, mixed_fleet
from tests.support.workers import Workers, wait_until

FLOWS = """
from pathlib import Path
from rival_workers import flow

LEDGER = Path({ledger!r})

def note(run_id, name):
    with LEDGER.open("a") as file:
        file.write(f"{{run_id}} {{name}}\\n")
    return name

def charge(run_id):
    note(run_id, "charge")
    if LEDGER.read_text().split("\\n").count(f"{{run_id}} charge") == 1:
        raise ValueError("not this time")
    return "charged"

@flow("cleans-up")
def cleans_up(ctx):
    ctx.step(note, ctx.run.run_id, "reserve")
    try:
        return ctx.step(charge, ctx.run.run_id)
    finally:
        ctx.step(note, ctx.run.run_id, "release")

@flow("child")
def child(ctx):
    ctx.step(note, ctx.run.run_id, "before")
    return ctx.await_event("go", key=ctx.run.run_id)

@flow("parent")
def parent(ctx):
    ctx.step(note, ctx.run.run_id, "before")
    return ctx.spawn("child").result()
"""
RUNS = 3


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    return tmp_path / "ledger.txt"


@pytest.fixture
def fleet(workers: Workers, tmp_path: Path, ledger: Path) -> None:
    file = tmp_path / "retried_flows.py"
    file.write_text(FLOWS.format(ledger=str(ledger)))
    mixed_fleet(workers, file)


def done(ledger: Path, run_id: str) -> dict[str, int]:
    """What the steps of one run really did."""
    lines = [line.rsplit(" ", 1) for line in ledger.read_text().splitlines()]
    return Counter(name for written_by, name in lines if written_by == run_id)


@pytest.mark.slow
@pytest.mark.usefixtures("fleet")
def test_a_retried_flow_repeats_the_failed_step_and_its_finally_step(rival: Rival, ledger: Path) -> None:
    runs = [rival.run("cleans-up") for _ in range(RUNS)]
    for run in runs:
        assert run.wait(timeout=40).status == "failed"
        assert done(ledger, run.run_id) == {"reserve": 1, "charge": 1, "release": 1}
        rival.retry(run.run_id)
    for run in runs:
        state = run.wait(timeout=40)
        assert (state.status, state.result) == ("completed", "charged"), state.error
        assert done(ledger, run.run_id) == {"reserve": 1, "charge": 2, "release": 2}
    assert_nothing_is_stuck(rival)


@pytest.mark.slow
@pytest.mark.usefixtures("fleet")
def test_a_retried_parent_continues_with_the_child_that_was_cancelled_with_it(rival: Rival, ledger: Path) -> None:
    parents = [rival.run("parent").run_id for _ in range(RUNS)]
    children = [f"{run_id}/spawn:child" for run_id in parents]

    for run_id in parents:
        wait_until(partial(waits, rival, run_id), 40, f"{run_id} and its child wait")
        assert rival.cancel(run_id)
        wait_until(partial(is_cancelled, rival, f"{run_id}/spawn:child"), 40, "the child is cancelled")
        assert rival.retry(run_id).retried_children == (f"{run_id}/spawn:child",)
    for run_id, child in zip(parents, children, strict=True):
        wait_until(partial(waits, rival, run_id), 40, partial(reasons, rival, run_id, child))
        rival.send_event("go", child, key=child)
        state = rival.wait("parent", run_id, timeout=40)
        assert (state.status, state.result) == ("completed", child), state.error
        assert rival.state(child).status == "completed"
        assert done(ledger, run_id) == done(ledger, child) == {"before": 1}
    assert_nothing_is_stuck(rival)


def reasons(rival: Rival, *run_ids: str) -> str:
    """For the failure: why these runs do not wait as expected."""
    return "\n".join(f"{rival.why(run_id)}\n{rival.history(run_id)}" for run_id in run_ids)


def waits(rival: Rival, parent: str) -> bool:
    """The parent waits for its child, and the child for its event."""
    if rival.state(parent).status != "suspended":
        return False
    return rival.state(f"{parent}/spawn:child").status == "suspended"


def is_cancelled(rival: Rival, run_id: str) -> bool:
    return rival.state(run_id).status == "cancelled"
