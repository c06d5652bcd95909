"""kill -9 at every failpoint of a flow: while it records, suspends, is woken, has a child, continues; and on a fleet
that loses workers meanwhile. Nothing is lost, and nothing that was committed is done twice.
"""

from __future__ import annotations

from collections import Counter

import pytest

from rival_client import Rival
from tests.support.chaos import Ledger, assert_nothing_is_stuck, mixed_fleet, start_many, wait_for_all
from tests.support.effort import long_but_first
from tests.support.workers import Workers, wait_until

FLOWS = """
from rival_workers import create_workflow, flow

class NoInput:
    result = None

class Here:
    def __init__(self, run, step):
        self.run_id, self.step, self.attempt = run.run_id, step, 1

def mark(run, step):
    note(Here(run, step), NoInput)
    return step

create_workflow("child").step(lambda run: mark(run, "child"), name="only").register()

@flow("journey")
def journey(ctx, input):
    turn = input["turn"]
    ctx.step(mark, ctx.run, f"a{turn}")
    ctx.sleep(0.05)
    ctx.step(mark, ctx.run, f"b{turn}")
    if turn == 0:
        got = ctx.await_event("go", key=ctx.run.id)
        ctx.step(mark, ctx.run, f"got{got}")
        ctx.call("child")
        ctx.gather(*((mark, ctx.run, f"g{n}") for n in range(3)))
        ctx.continue_as({"turn": 1})
    return ctx.step(mark, ctx.run, "end")
"""
STEPS = {"a0", "b0", "got7", "g0", "g1", "g2", "a1", "b1", "end"}
POINTS = [
    "after_checkpoint_commit",
    "after_suspend_commit",
    "after_deliver_commit",
    "after_child_commit",
    "after_finish_commit",
    "after_claim_commit",
    "after_child_end_commit",
    "after_continue_commit",
]


def assert_each_was_done(rival: Rival, run_ids: list[str], ledger: Ledger, *, kills: int) -> None:
    for run_id in run_ids:
        state = rival.state(run_id)
        assert (state.status, state.result) == ("completed", "end"), state.error
        ran = Counter(line.step for line in ledger.lines(run_id))
        assert set(ran) == STEPS
        assert sum(ran.values()) <= len(STEPS) + kills, "only what was not committed is done again"
        assert rival.state(f"{run_id}/call:child").status == "completed"
    assert_nothing_is_stuck(rival)


def send_all(rival: Rival, run_ids: list[str]) -> None:
    for run_id in run_ids:
        rival.send_event("go", 7, key=run_id)


@pytest.mark.slow
@pytest.mark.parametrize("point", long_but_first(*POINTS))
def test_a_worker_that_dies_at_a_failpoint_of_a_flow_loses_nothing_and_doubles_nothing(
    rival: Rival, workers: Workers, ledger: Ledger, point: str
) -> None:
    doomed, _ = mixed_fleet(workers, ledger.workflow(FLOWS), {"failpoint": point}, {})
    run_ids: list[str] = []
    # The other worker may be the quicker one for a while.
    while doomed.process.poll() is None and len(run_ids) < 60:
        some = start_many(rival, 6, "journey", turn=0)
        send_all(rival, some)
        wait_for_all(rival, some)
        run_ids += some
    assert doomed.process.wait(20) < 0
    assert_each_was_done(rival, run_ids, ledger, kills=4)


@pytest.mark.slow
def test_a_keeper_that_dies_between_finding_a_timer_and_publishing_leaves_it_to_the_next(
    rival: Rival, workers: Workers, ledger: Ledger
) -> None:
    """Without countdowns, a keeper publishes the message of every timer."""
    file = ledger.workflow(FLOWS)
    [doomed] = workers.start(file, near=0, failpoint="after_due_commit", ring_grace=1)
    run_ids = start_many(rival, 3, "journey", turn=0)
    send_all(rival, run_ids)
    assert doomed.process.wait(20) < 0
    workers.start(file, near=0, ring_grace=1)
    wait_for_all(rival, run_ids)
    assert_each_was_done(rival, run_ids, ledger, kills=4)


@pytest.mark.slow
def test_flows_on_a_fleet_that_loses_a_worker_go_on(rival: Rival, workers: Workers, ledger: Ledger) -> None:
    first, _ = mixed_fleet(workers, ledger.workflow(FLOWS))
    run_ids = start_many(rival, 20, "journey", turn=0)
    wait_until(lambda: len(ledger.lines()) > 20)
    first.kill()
    send_all(rival, run_ids)
    wait_for_all(rival, run_ids)
    assert_each_was_done(rival, run_ids, ledger, kills=4)
