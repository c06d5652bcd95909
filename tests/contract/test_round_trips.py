"""How often the happy path asks the database: a step is one round trip and one commit, and no guarantee may add one."""

from __future__ import annotations

from typing import Any

import pytest

from rival_workers import breaker, for_each, step
from rival_workers.runtime.attempt import inline_ends
from tests.support.flows import define
from tests.support.inline import Inline
from tests.support.round_trips import round_trips


@pytest.fixture
def fleet(inline: Inline) -> Inline:
    if not inline.store.database.is_postgres:
        pytest.skip("SQLite has no round trips")
    # Counts are compared, so the time budget must not matter.
    object.__setattr__(inline.coordinator.settings, "continuation_budget", 600.0)
    return inline


def nothing() -> None:
    pass


def asked_by(fleet: Inline, workflow: str, input: Any = None) -> list[str]:
    fleet.rival.run(workflow, input, run_id="r")
    with round_trips(fleet.store) as asked:
        fleet.drain()
    assert fleet.rival.state("r").status == "completed"
    return asked


def test_each_step_of_a_plan_is_one_round_trip(fleet: Inline) -> None:
    fleet.define("w", *[step(nothing, name=name) for name in "abc"])
    assert asked_by(fleet, "w") == [
        "rival_begin_run",
        "rival_finish_step_and_claim",
        "rival_finish_step_and_claim",
        "rival_finish_step_and_complete",
    ]


def test_a_closed_breaker_is_one_round_trip_more(fleet: Inline) -> None:
    fleet.define("w", step(nothing, name="a", circuit_breaker=breaker("closed")), step(nothing, name="b"))
    assert asked_by(fleet, "w") == [
        "rival_begin_run",
        "rival_ask_breaker",
        "rival_finish_step_and_claim",
        "rival_finish_step_and_complete",
    ]


def test_inline_steps_that_follow_each_other_are_one_round_trip(fleet: Inline, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inline_ends, "WITHIN", 60.0)
    inline = [step(nothing, name=f"i{number}", execution_mode="inline") for number in range(12)]
    fleet.define("w", step(nothing, name="a"), *inline, step(nothing, name="z"))
    assert asked_by(fleet, "w") == [
        "rival_begin_run",
        "rival_finish_step_and_claim",
        "10 together, at last rival_finish_step_and_claim",
        "2 together, at last rival_finish_step_and_claim",
        "rival_finish_step_and_complete",
    ]


def test_each_item_of_a_for_each_is_one_round_trip(fleet: Inline) -> None:
    fleet.define("w", for_each("all", items=lambda: range(20), do=[step(nothing, name="a")], concurrency=1))
    asked = [what for what in asked_by(fleet, "w") if what.startswith("rival_")]
    assert asked == ["rival_finish_step_of_lane_and_claim"] * 20, "only the first and the last one need more"


def test_each_step_of_a_flow_is_one_round_trip(fleet: Inline) -> None:
    define(fleet, lambda ctx: [ctx.step(nothing) for _ in range(5)] and None)
    assert asked_by(fleet, "f") == [
        "rival_begin_run",
        *["rival_record_checkpoint"] * 5,
        "rival_finish_step_and_complete",
    ]


def test_a_flow_that_continues_costs_the_same_each_time(fleet: Inline) -> None:
    def body(ctx: Any, input: int) -> None:
        ctx.step(nothing)
        if input:
            ctx.continue_as(input - 1)

    define(fleet, body)
    turn = ["rival_record_checkpoint", "rival_continue_flow_and_claim"]
    asked = asked_by(fleet, "f", 4)
    assert asked[2 : 2 + 4 * len(turn)] == turn * 4, asked


def test_a_stale_start_is_one_round_trip(fleet: Inline) -> None:
    fleet.define("w", step(nothing, name="a"))
    fleet.rival.run("w", run_id="r")
    [message] = fleet.doorbell.take()
    fleet.deliver(message)
    with round_trips(fleet.store) as asked:
        fleet.deliver(message)
    assert asked == ["rival_begin_run"]
