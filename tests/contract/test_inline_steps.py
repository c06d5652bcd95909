"""Inline steps: they run in the process that has ended the step before, without a message, also when that has used up
its continuation budget. Each outcome is committed by itself, and what cannot run in place gets a message.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from rival_client import InvalidArgument
from rival_workers import (
    DefinitionError,
    branch,
    breaker,
    create_workflow,
    delay_step,
    flow,
    for_each,
    limit,
    of_kind,
    parallel,
    rate,
    step,
)
from rival_workers.definition.define import define_workflow
from tests.support.inline import Clock, Inline

INLINE: dict[str, Any] = {"execution_mode": "inline"}


@pytest.fixture(params=["sqlite", "postgres"])
def inline(request: pytest.FixtureRequest) -> Iterator[Inline]:
    """A worker that goes on in place with nothing else."""
    url = request.getfixturevalue("file_url" if request.param == "sqlite" else "postgres_url")
    opened = Inline(url, clock=Clock() if request.param == "sqlite" else None, continuation_budget=0.0)
    yield opened
    opened.close()


def works() -> str:
    return "done"


def inlined(name: str, **options: Any) -> Any:
    return step(works, name=name, **INLINE, **options)


def durable(name: str, **options: Any) -> Any:
    return step(works, name=name, **options)


def messages(inline: Inline, *steps: Any, run_id: str = "r", **options: Any) -> list[str | None]:
    """The paths of the messages that are delivered until the run has nothing more to do."""
    inline.define("w", *steps, **options)
    inline.rival.run("w", {"x": 1}, run_id)
    return [one.path for one in inline.drain()]


def test_an_inline_step_follows_without_a_message_and_its_outcome_is_committed_by_itself(inline: Inline) -> None:
    seen: list[dict[str, str]] = []

    def looks() -> None:
        seen.append({one.path: one.status for one in inline.rival.state("r").steps})

    steps = [durable("a"), inlined("b"), step(looks, name="c", **INLINE), durable("d")]
    assert messages(inline, *steps) == [None, "a", "d"]
    assert seen == [{"a": "completed", "b": "completed", "c": "running"}]
    opened = {one.path: one.what for one in reversed(inline.rival.history("r")) if one.path}
    assert opened == {"a": "scheduled", "b": "claimed", "c": "claimed", "d": "scheduled"}
    assert inline.rival.result("r").results == {"a": "done", "b": "done", "c": None, "d": "done"}


def test_the_first_step_of_a_run_follows_its_start(inline: Inline) -> None:
    assert messages(inline, inlined("a"), durable("b")) == [None, "b"]


def test_functions_of_composites_lanes_and_flows_can_be_inline(inline: Inline) -> None:
    @flow("f", register=False)
    def talks(ctx: Any) -> str:
        return str(ctx.step(works, execution_mode="inline"))

    steps = [
        branch("big?", when=lambda: True, then=[inlined("then")], **INLINE),
        for_each("each", items=lambda: [1, 2, 3], do=[inlined("do")], concurrency=1, **INLINE),
        delay_step(0.0, name="nap"),
        inlined("after"),
        step(talks, name="talk", **INLINE),
    ]
    assert messages(inline, *steps) == [None, "nap"]
    assert inline.rival.result("r").result == "done"


def test_of_several_steps_that_open_at_once_one_runs_in_place(inline: Inline) -> None:
    lanes = [[durable("slow")], [inlined("quick"), inlined("more")], [inlined("last")]]
    assert messages(inline, durable("a"), parallel("both", lanes), inlined("end")) == [
        None,
        "a",
        "both/slow",
        "both/last",
    ]
    assert inline.rival.state("r").status == "completed"


@pytest.mark.parametrize("layer", ["workflow", "run", "fleet"])
def test_rules_make_steps_inline_and_take_it_back(inline: Inline, layer: str) -> None:
    inline.define(
        "w", durable("a"), durable("b"), inlined("c"), policies=[("b", INLINE)] if layer == "workflow" else []
    )
    if layer == "fleet":
        inline.rival.set_policy("b", INLINE)
        inline.rival.set_policy("c", {"execution_mode": "durable"})
        inline.keeper.run_once()
    rules = [("b", INLINE), ("c", {"execution_mode": "durable"})] if layer == "run" else None
    inline.rival.run("w", None, "r", policies=rules)
    assert [one.path for one in inline.drain()] == ([None, "a"] if layer == "workflow" else [None, "a", "c"])
    explained = {one.name: one.value for one in inline.rival.explain_policy("r", "b").fields}
    assert explained["execution_mode"] == "inline"


def test_a_retry_goes_through_the_timer(inline: Inline) -> None:
    attempts: list[int] = []

    def fails(ctx: Any) -> None:
        attempts.append(ctx.run.attempt)
        if len(attempts) == 1:
            raise ValueError("boom")

    steps = [durable("a"), step(fails, name="b", max_retries=1, base_delay=20, **INLINE), inlined("c")]
    assert messages(inline, *steps) == [None, "a"]
    assert (attempts, inline.rival.state("r").steps[1].status) == ([1], "waiting_retry")
    inline.time_passes(60)
    inline.keeper.run_once()
    # On SQLite also by its countdown.
    assert {one.path for one in inline.drain()} == {"b"}
    assert (attempts, inline.rival.state("r").status) == ([1, 2], "completed")


def test_a_worker_that_shuts_down_leaves_it_to_a_message(inline: Inline) -> None:
    inline.define("w", durable("a"), inlined("b"))
    inline.rival.run("w", None, "r")
    inline.coordinator.stopping = True
    for path in (None, "a"):
        [message] = inline.doorbell.take()
        assert message.path == path
        inline.deliver(message)
    [left] = inline.doorbell.take()
    assert (left.path, inline.rival.state("r").steps[1].status) == ("b", "pending")


def test_a_paused_run_leaves_it_to_a_message(inline: Inline) -> None:
    inline.define("w", step(lambda: inline.rival.pause("r"), name="a"), inlined("b"))
    inline.rival.run("w", None, "r")
    assert [one.path for one in inline.drain()][:2] == [None, "a"]
    assert inline.rival.state("r").steps[1].status == "pending"
    inline.rival.resume("r")
    assert [one.path for one in inline.drain()] == ["b"]


def test_a_limit_that_does_not_wait_is_possible(inline: Inline) -> None:
    limited = inlined("b", concurrency_limit=limit(1, on_full="skip"))
    assert messages(inline, durable("a"), limited, inlined("c")) == [None, "a"]
    assert inline.rival.result("r").result == "done"


def test_a_fleet_rule_leaves_an_external_step_external(inline: Inline) -> None:
    inline.define("w", step(works, name="ask", execution_mode="external"), policies=[(of_kind("step"), INLINE)])
    inline.rival.set_policy("ask", INLINE)
    inline.keeper.run_once()
    inline.rival.run("w", None, "r")
    inline.drain()
    [row] = inline.rival.state("r").steps
    assert (row.kind, row.status) == ("external", "waiting")


WAITS: dict[str, dict[str, Any]] = {
    "delay": {"delay": 5},
    "a queue of its own": {"queue": "gpu"},
    "a limit that waits": {"concurrency_limit": 5},
    "a limit that waits ": {"rate_limit": rate(5, per=1)},
    "idempotency_key": {"idempotency_key": "k"},
    'a circuit_breaker with on_open="wait"': {"circuit_breaker": breaker("b", on_open="wait")},
}


@pytest.mark.parametrize("what", WAITS)
def test_what_would_make_it_wait_is_refused_with_its_name(what: str) -> None:
    wrong = f'execution_mode="inline" runs .* so it cannot have {what.strip()}'
    with pytest.raises(DefinitionError, match=wrong):
        define_workflow("w", [step(works, **INLINE, **WAITS[what])])
    with pytest.raises(DefinitionError, match=wrong):
        define_workflow("w", [step(works, **WAITS[what])], policies=[("works", INLINE)])
    with pytest.raises(DefinitionError, match=wrong):
        create_workflow("w").step(works, **INLINE, **WAITS[what]).build()


def test_a_queue_of_the_whole_workflow_is_possible() -> None:
    assert define_workflow("w", [inlined("a")], queue="gpu").policies.at("a").is_inline


def test_a_rule_that_contradicts_itself_is_refused(inline: Inline) -> None:
    with pytest.raises(InvalidArgument, match="so it cannot have delay"):
        inline.rival.set_policy("a", {**INLINE, "delay": 5})
