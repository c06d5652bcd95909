"""kill -9 and copies of every message inside a parallel block, a for_each of 1,000 items and a nested workflow: each
join fires exactly once.
"""

from __future__ import annotations

from collections import Counter

import pytest

from rival_client import Rival, RunState
from rival_client.broker.redis_doorbell import RedisDoorbell
from tests.chaos.test_messages import TRIPLED
from tests.support.chaos import Ledger, assert_nothing_is_stuck, mixed_fleet, start_many, thrice, wait_for_all
from tests.support.effort import long_but_first
from tests.support.workers import Workers, wait_until

MANY, FEW = 1000, 30
JOINS = """
from rival_workers import for_each, parallel, workflow
from rival_workers.definition.define import define_workflow

class NoInput:
    result = None

def mark(run):
    note(run, NoInput)
    return run.step

def slowly(run):
    note(run, NoInput)
    time.sleep(0.02)
    return run.step

def items(input):
    return range(input["items"])

def each(run, item):
    note(run, NoInput)
    return item

nested = define_workflow("nested", [step(mark, name="one"), step(slowly, name="two"), step(mark, name="three")])
name = "joins"
steps = [
    parallel("both", [step(slowly, name="a"), [step(slowly, name="b"), step(slowly, name="c")],
                      step(slowly, name="d")]),
    step(mark, name="after_both"),
    for_each("all", items=items, do=[each], concurrency=20),
    step(mark, name="after_all"),
    parallel("nests", [workflow(nested, name="left"), workflow(nested, name="right")]),
    step(mark, name="after_nests"),
]
"""
AFTER = ("after_both", "after_all", "after_nests")
SINGLE = {
    "both/a",
    "both/b",
    "both/c",
    "both/d",
    *AFTER,
    *(f"nests/{side}/{name}" for side in ("left", "right") for name in ("one", "two", "three")),
}


def leaves(items: int) -> set[str]:
    return SINGLE | {f"all[{n}]/each" for n in range(items)}


def assert_joined_once(rival: Rival, run_id: str, ledger: Ledger, items: int) -> RunState:
    state = rival.state(run_id)
    rows = {step.path: step for step in state.steps}
    ran = Counter(line.step for line in ledger.lines(run_id))
    assert state.status == "completed", state.error
    assert {step.path for step in state.steps if step.kind == "step"} == leaves(items)
    assert {step.status for step in state.steps} == {"completed"}
    assert rows["all"].result == list(range(items))
    assert (rows["all"].total, rows["all"].opened, rows["all"].remaining) == (items, items, 0)
    assert rows["nests"].result == {"left": "nests/left/three", "right": "nests/right/three"}
    for path in leaves(items):
        assert 1 <= ran[path] <= 1 + rows[path].lost, (path, ran[path], rows[path].lost)
    return state


@pytest.mark.slow
@pytest.mark.parametrize(
    ("where", "items"), long_but_first(("nests/left/two", FEW), ("both/b", FEW), ("all[200]/each", MANY))
)
def test_a_worker_killed_inside_a_composite_costs_no_join_and_doubles_none(
    rival: Rival, workers: Workers, ledger: Ledger, where: str, items: int
) -> None:
    fleet = mixed_fleet(workers, ledger.workflow(JOINS))
    [run_id] = start_many(rival, 1, "joins", items=items)
    wait_until(lambda: ledger.lines(run_id, where))
    victim = ledger.lines(run_id, where)[0].pid
    next(worker for worker in fleet if worker.pid == victim).kill()
    wait_for_all(rival, [run_id])
    assert_joined_once(rival, run_id, ledger, items)
    assert_nothing_is_stuck(rival)


@pytest.mark.long
@pytest.mark.slow
def test_every_message_three_times_and_shuffled_doubles_no_join(
    rival: Rival, workers: Workers, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RedisDoorbell, "_send", thrice(RedisDoorbell._send))
    mixed_fleet(workers, ledger.workflow(TRIPLED + JOINS))
    # Not MANY: with three messages for each item, a loaded machine would need longer than any sensible limit.
    several = 200
    run_ids = start_many(rival, 1, "joins", items=several) + start_many(rival, 4, "joins", items=FEW)
    wait_for_all(rival, run_ids, timeout=90)
    for run_id, items in zip(run_ids, (several, *[FEW] * 4), strict=True):
        assert_joined_once(rival, run_id, ledger, items)
        assert Counter(line.step for line in ledger.lines(run_id)) == Counter(leaves(items)), "nothing ran twice"
    assert_nothing_is_stuck(rival)


@pytest.mark.slow
def test_a_worker_that_dies_after_a_lanes_commit_and_before_publishing_costs_no_join(
    rival: Rival, workers: Workers, ledger: Ledger
) -> None:
    file = ledger.workflow(JOINS)
    *doomed, _ = mixed_fleet(
        workers, file, {"continuation_budget": 0, "failpoint": "after_finish_commit"}, {"continuation_budget": 0}
    )
    [run_id] = start_many(rival, 1, "joins", items=FEW)
    assert doomed[0].process.wait(15) < 0
    wait_for_all(rival, [run_id])
    assert_joined_once(rival, run_id, ledger, FEW)
