"""Limits of steps: never exceeded, first come first served, and every way out of a running step gives its slot back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from rival_workers import StepError, limit, parallel, step
from rival_workers.engine.decisions import Retry
from rival_workers.store.claim_records import Claim, Claimed, Queued
from tests.contract.stage import ERROR
from tests.support.inline import Inline
from tests.support.limits import Slots, assert_gates_are_consistent, work

pytestmark = pytest.mark.usefixtures("locks_in_order")


@pytest.fixture
def slots(inline: Inline) -> Iterator[Slots]:
    yield Slots(inline)
    assert_gates_are_consistent(inline.store.database, at_rest=True)


def one_at_a_time(slots: Slots) -> None:
    slots.inline.define("w", step(work, concurrency_limit=1))


def test_more_than_the_limit_wait_in_the_order_of_their_arrival(slots: Slots) -> None:
    slots.inline.define("w", step(work, concurrency_limit=2))
    slots.hold("a", "b", "c", "d")
    assert slots.used == {"w/work": 2}
    assert slots.waiting == ["c", "d"]
    assert [slots.status(name) for name in "abcd"] == ["running", "running", "waiting", "waiting"]
    assert slots.run("c").status == "suspended"


def test_a_finish_hands_its_slot_to_the_first_that_waits(slots: Slots) -> None:
    one_at_a_time(slots)
    slots.hold("a", "b", "c")
    finished = slots.finish("a")
    assert [one.run_id for one in finished.grants] == ["b"]
    assert slots.used == {"w/work": 1}
    assert (slots.granted, slots.waiting) == (["b"], ["c"])
    assert isinstance(slots.claim("b"), Claimed)
    assert slots.granted == []


def test_a_grant_whose_message_went_with_a_worker_is_made_due(slots: Slots) -> None:
    one_at_a_time(slots)
    slots.hold("a", "b", "c")
    slots.finish("a")
    assert slots.store.make_all_due(600, 100) == 1
    slots.inline.time_passes(0.1)
    assert slots.inline.keeper.run_once().published == 1
    assert [(message.run_id, message.path) for message in slots.inline.doorbell.take()] == [("b", "work")]


def test_a_newcomer_does_not_pass_those_that_wait(slots: Slots) -> None:
    one_at_a_time(slots)
    slots.hold("a", "b")
    slots.finish("a")
    slots.start("late")
    assert isinstance(slots.claim("late"), Queued)
    assert slots.waiting == ["late"]


def test_a_message_does_not_start_what_still_waits(slots: Slots) -> None:
    one_at_a_time(slots)
    slots.hold("a", "b")
    assert slots.claim("b") is None
    assert slots.status("b") == "waiting"


def test_a_whole_fleet_of_one_runs_everything(slots: Slots) -> None:
    one_at_a_time(slots)
    for name in "abcdef":
        slots.inline.rival.run("w", None, run_id=name)
    slots.inline.drain()
    assert {slots.run(name).result for name in "abcdef"} == set("abcdef")
    assert slots.used == {"w/work": 0}


def test_what_has_waited_goes_on_in_place_after_the_finish_that_lets_it_through(slots: Slots) -> None:
    one_at_a_time(slots)
    slots.hold("a", "b", "c")
    running = slots.running.pop("a")
    slots.store.hand_back_step(running)
    message = slots.inline.doorbell.take()[-1]
    assert message.run_id == "b"
    slots.inline.deliver(message)
    # b's finish handed the slot to c, and c's to a: all in the process that ran b.
    assert slots.inline.doorbell.take() == [] or slots.inline.drain() is not None
    assert [slots.status(name) for name in "bc"] == ["completed", "completed"]


# -- every way out of `running` -----------------------------------------------------------------------------


def _retry(slots: Slots, claim: Claim) -> None:
    slots.store.retry_step(claim, Retry(100.0, ERROR), published=True)


def _fail(slots: Slots, claim: Claim) -> None:
    slots.inline.coordinator.transitions.take_over(
        slots.store.running_on(slots.inline.process.executor.id)[0], {"type": "X", "message": "x", "attempt": 1}
    )


OUT: dict[str, Callable[[Slots, Claim], Any]] = {
    "finish": lambda slots, claim: slots.finish(claim.run_id),
    "retry": _retry,
    "taken over": lambda slots, claim: slots.store.take_over_step(claim),
    "handed back": lambda slots, claim: slots.store.hand_back_step(claim),
    "cancelled": lambda slots, claim: slots.inline.rival.cancel(claim.run_id),
    "skipped by an operator": lambda slots, claim: slots.inline.rival.skip(claim.run_id, "work", reason="test"),
    "set by an operator": lambda slots, claim: slots.inline.rival.set_result(
        claim.run_id, "work", {"n": 1}, reason="test"
    ),
    "rewound": lambda slots, claim: slots.inline.rival.rewind(claim.run_id, "work"),
}


@pytest.mark.parametrize("way", OUT)
def test_every_way_out_of_running_gives_the_slot_to_the_next(slots: Slots, way: str) -> None:
    one_at_a_time(slots)
    slots.hold("a", "b", "c")
    OUT[way](slots, slots.running["a"])
    assert slots.granted == ["b"]
    assert slots.used == {"w/work": 1}
    assert_gates_are_consistent(slots.database, at_rest=True)
    slots.claim("b")
    slots.finish("b")
    assert slots.granted == ["c"]


@pytest.mark.parametrize("way", OUT)
def test_a_late_result_gives_nothing_back_a_second_time(slots: Slots, way: str) -> None:
    one_at_a_time(slots)
    slots.hold("a", "b", "c")
    stale = slots.running["a"]
    OUT[way](slots, stale)
    assert slots.store.retry_step(stale, Retry(0.0, ERROR), published=True) is None
    assert slots.store.take_over_step(stale) is None
    assert slots.used == {"w/work": 1}


def test_a_timeout_gives_the_slot_back(slots: Slots) -> None:
    slots.inline.define("w", step(work, concurrency_limit=1, timeout=30))
    slots.hold("a", "b")
    row = slots.step("a")
    from rival_workers.runtime.attempt.position import Position

    claim = Claim("a", "work", row["timeout_token"], "timeout_token")
    definition = next(iter(slots.inline.registry))
    position = Position(claim, "w", definition.version, definition.policies, 1, 0, "step")
    assert slots.inline.coordinator.transitions.time_out(position)
    assert slots.granted == ["b"]


# -- leaving the queue --------------------------------------------------------------------------------------

LEAVES: dict[str, Callable[[Inline], Any]] = {
    "cancelled": lambda inline: inline.rival.cancel("b"),
    "paused": lambda inline: inline.rival.pause("b"),
    "skipped by an operator": lambda inline: inline.rival.skip("b", "work", reason="test"),
    "rewound": lambda inline: inline.rival.rewind("b", "work"),
}


@pytest.mark.parametrize("is_granted", [False, True], ids=["waiting", "granted"])
@pytest.mark.parametrize("how", LEAVES)
def test_a_step_that_does_not_wait_any_more_leaves_the_queue_and_its_slot(
    slots: Slots, how: str, is_granted: bool
) -> None:
    one_at_a_time(slots)
    slots.hold("a", "b", "c")
    if is_granted:
        slots.finish("a")
    LEAVES[how](slots.inline)
    assert "b" not in slots.waiting + slots.granted
    assert slots.granted == (["c"] if is_granted else [])
    assert slots.used == {"w/work": 1}


def test_a_resumed_run_takes_its_place_again(slots: Slots) -> None:
    one_at_a_time(slots)
    slots.hold("a", "b")
    slots.inline.rival.pause("b")
    assert slots.status("b") == "pending"
    slots.finish("a")
    assert slots.used == {"w/work": 0}
    slots.inline.rival.resume("b")
    slots.inline.drain()
    assert slots.status("b") == "completed"


def test_a_step_that_no_worker_here_knows_holds_no_slot(slots: Slots) -> None:
    one_at_a_time(slots)
    slots.hold("a", "b", "c")
    slots.finish("a")
    assert slots.granted == ["b"]
    assert slots.store.park_step(Claim("b", "work", slots.step("b")["execution_token"]), "no code", 15.0) is True
    assert slots.granted == ["c"]
    assert (slots.status("b"), slots.step("b")["parked"]) == ("pending", "no code")


def test_the_keeper_publishes_a_grant_whose_message_was_lost(slots: Slots) -> None:
    one_at_a_time(slots)
    slots.hold("a", "b")
    slots.inline.rival.cancel("a")
    slots.inline.doorbell.take()
    slots.inline.keeper.run_once()
    slots.inline.drain()
    assert slots.status("b") == "completed"


# -- steps beside and after each other ----------------------------------------------------------------------


def test_lanes_of_one_run_share_a_limit(slots: Slots) -> None:
    one = limit("shared", 1)
    lanes = [step(work, name=f"lane{n}", concurrency_limit=one) for n in range(4)]
    slots.inline.define("lanes", parallel("all", lanes))
    slots.inline.rival.run("lanes", None, run_id="r")
    slots.inline.drain()
    assert slots.run("r").status == "completed"
    assert slots.used == {"shared": 0}


def test_steps_after_each_other_each_take_a_slot(slots: Slots) -> None:
    first, second = step(work, name="first", concurrency_limit=1), step(work, name="second", concurrency_limit=1)
    slots.inline.define("two", first, step(work, name="between"), second)
    for name in "abc":
        slots.inline.rival.run("two", None, run_id=name)
    slots.inline.drain()
    assert [slots.run(name).status for name in "abc"] == ["completed"] * 3
    assert slots.used == {"two/first": 0, "two/second": 0}


def test_a_retry_waits_without_a_slot_and_queues_again(slots: Slots) -> None:
    tries: list[str] = []

    def flaky(run: Any) -> None:
        tries.append(run.run_id)
        if len(tries) == 1:
            raise StepError("again", behavior="retry")

    slots.inline.define("w", step(flaky, name="work", concurrency_limit=1, max_attempts=2, backoff="none"))
    for name in "ab":
        slots.inline.rival.run("w", None, run_id=name)
    slots.inline.drain()
    assert tries == ["a", "b", "a"] or tries == ["a", "a", "b"]
    assert slots.used == {"w/work": 0}
