"""A flow's `state` is stored with its checkpoints, so that it is seen while the flow waits."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from rival_client.model.rebuild import rebuild
from rival_workers import StepError
from tests.contract.test_lost_commit_replies import lose_answer
from tests.support.flows import define, finish, run
from tests.support.histories import assert_histories_are_complete
from tests.support.inline import Inline
from tests.support.round_trips import round_trips


def start(inline: Inline, body: Any, **options: Any) -> None:
    define(inline, body, **options)
    inline.rival.run("f", run_id="r")
    inline.drain()


def seen(inline: Inline) -> dict[str, Any]:
    """The flow's state as clients see it, which is also that of its history."""
    assert_histories_are_complete(inline.store.database)
    step = inline.rival.state("r").steps[0]
    assert (step.path, step.description) == ("f", step.state.get("description"))
    return step.state


def carrying(inline: Inline) -> list[tuple[str | None, str, Any]]:
    """The entries that have a state."""
    entries = inline.rival.history("r")
    return [(one.path, one.what, one.detail["state"]) for one in entries if "state" in one.detail]


def not_yet() -> None:
    raise StepError("not yet", behavior="retry")


# -- where it is seen -------------------------------------------------------------------------------------


def test_it_is_seen_while_a_flow_sleeps_and_waits_for_an_event_and_after_a_step(inline: Inline) -> None:
    after_step: list[Any] = []

    def body(ctx: Any) -> Any:
        ctx.state.description = "asks for a price"
        ctx.step(lambda: 1, name="ask")
        ctx.step(lambda: after_step.append(seen(inline)), name="look")
        ctx.state.description = "waits for the answer"
        ctx.await_event("answer")
        ctx.state.asked = [1, 2]
        ctx.sleep(days=3)

    start(inline, body)
    assert after_step == [{"description": "asks for a price"}]
    assert seen(inline) == {"description": "waits for the answer"}
    inline.rival.send_event("answer")
    inline.drain()
    assert seen(inline) == {"description": "waits for the answer", "asked": [1, 2]}
    assert inline.rival.get("f").get_or_create("r").get_state().steps[0].description == "waits for the answer"
    assert [what for _, what, _ in carrying(inline)] == ["completed", "waiting", "waiting"]


def test_it_is_seen_while_the_lanes_of_an_async_flow_wait(inline: Inline) -> None:
    async def body(ctx: Any, state: Any) -> Any:
        async def lane(name: str) -> None:
            state[name] = "asks"
            await ctx.step(lambda: None, name=name)
            state[name] = "waits"
            await ctx.await_event(name)
            state[name] = "done"

        await asyncio.gather(lane("a"), lane("b"))
        state.description = "all have come"
        await ctx.sleep(days=1)

    start(inline, body)
    assert seen(inline) == {"a": "waits", "b": "waits"}
    inline.rival.send_event("b")
    inline.drain()
    assert seen(inline) == {"a": "waits", "b": "done"}
    inline.rival.send_event("a")
    inline.drain()
    assert seen(inline) == {"a": "done", "b": "done", "description": "all have come"}


def test_it_is_seen_while_a_step_waits_for_its_next_attempt(inline: Inline) -> None:
    def body(ctx: Any) -> Any:
        ctx.state.description = "tries"
        ctx.step(not_yet, max_attempts=2, base_delay=60)

    start(inline, body)
    assert inline.rival.state("r").status == "suspended"
    assert seen(inline) == {"description": "tries"}


def test_it_is_seen_of_a_step_that_is_over_its_time(inline: Inline) -> None:
    def body(ctx: Any) -> Any:
        ctx.state.description = "tries"
        ctx.step(time.sleep, 1, name="slow", timeout=0.1, max_attempts=2, on_timeout="retry", base_delay=60)

    start(inline, body)
    assert inline.rival.state("r").status == "suspended"
    assert seen(inline) == {"description": "tries"}


def test_it_is_stored_with_values_and_spawned_children(inline: Inline) -> None:
    define(inline, lambda ctx: ctx.sleep(days=1), name="child")
    found: list[Any] = []

    def body(ctx: Any) -> Any:
        for name, act in (("now", ctx.now), ("child", lambda: ctx.spawn("child")), ("nap", lambda: ctx.sleep(0))):
            ctx.state.at = name
            act()
            found.append(seen(inline))

    start(inline, body)
    assert found == [{"at": "now"}, {"at": "child"}, {"at": "nap"}]
    assert seen(inline) == {"at": "nap"}


def test_it_is_stored_with_steps_that_end_beside_one_another(inline: Inline) -> None:
    found: list[Any] = []

    def body(ctx: Any) -> Any:
        ctx.state.description = "gathers"
        ctx.gather(lambda: 1, lambda: 2, lambda: 3)
        found.append(seen(inline))

    start(inline, body)
    assert found == [{"description": "gathers"}]
    assert len(carrying(inline)) == 2, "one of the three steps, and the flow's end"


# -- what is not stored -----------------------------------------------------------------------------------


def test_what_has_not_changed_is_not_written_again(inline: Inline) -> None:
    def body(ctx: Any) -> Any:
        ctx.state.description = "the same"
        for _ in range(3):
            ctx.step(lambda: 1, name="one")
        ctx.sleep(0.05)
        ctx.gather(lambda: 1, lambda: 2)
        ctx.await_event("go")
        ctx.step(lambda: 1, name="one")

    start(inline, body)
    inline.rival.send_event("go")
    finish(inline)
    state = {"description": "the same"}
    assert carrying(inline) == [("f/one", "completed", state), ("f", "completed", state)]


def test_a_changed_state_costs_a_checkpoint_no_statement_and_no_commit(inline: Inline) -> None:
    counts: dict[bool, int] = {}

    def body(ctx: Any, input: Any) -> Any:
        ctx.step(lambda: 1, name="first")
        with round_trips(inline.store) as done:
            for number in range(5):
                if input:
                    ctx.state.number = number
                ctx.sleep(0)
        counts[bool(input)] = len(done)

    define(inline, body)
    for input in (0, 1):
        inline.rival.run("f", input, run_id=f"r{input}")
        inline.drain()
    assert counts[False] == counts[True]


def test_what_a_flow_writes_while_it_stops_is_not_stored(inline: Inline) -> None:
    def body(ctx: Any) -> Any:
        ctx.state.description = "sleeps"
        try:
            ctx.sleep(days=1)
        finally:
            ctx.state.description = "stops"
            ctx.step(lambda: 1, name="never")

    start(inline, body)
    assert seen(inline) == {"description": "sleeps"}


def test_each_attempt_begins_with_an_empty_state_and_fills_it_again(inline: Inline) -> None:
    found: list[dict[str, Any]] = []

    def body(ctx: Any) -> Any:
        found.append(dict(ctx.state))
        ctx.state.description = "one"
        ctx.await_event("a")
        ctx.state.clear()
        ctx.await_event("b")
        return dict(ctx.state)

    start(inline, body)
    inline.rival.send_event("a")
    inline.drain()
    assert seen(inline) == {}, "a state that was emptied is stored, too"
    inline.rival.send_event("b")
    assert (finish(inline), found) == ({}, [{}, {}, {}])


def test_a_flow_that_continues_keeps_its_state_until_its_next_checkpoint(inline: Inline) -> None:
    def body(ctx: Any, input: Any) -> Any:
        if input:
            found.append((dict(ctx.state), seen(inline)))
            return ctx.sleep(days=1)
        ctx.state.description = "first"
        ctx.step(lambda: 1, name="one")
        return ctx.continue_as(1)

    found: list[Any] = []
    start(inline, body)
    assert found == [({}, {"description": "first"})]
    assert seen(inline) == {}


def test_a_changed_state_is_stored_by_continuing(inline: Inline) -> None:
    def body(ctx: Any, input: Any) -> Any:
        if input:
            return seen(inline)
        ctx.step(lambda: 1, name="one")
        ctx.state.description = "continues"
        return ctx.continue_as(1)

    assert run(inline, body) == {"description": "continues"}


# -- what goes wrong --------------------------------------------------------------------------------------


WAYS: dict[str, Any] = {
    "step": lambda ctx: ctx.step(lambda: 1, name="one"),
    "sleep": lambda ctx: ctx.sleep(1),
    "now": lambda ctx: ctx.now(),
    "gather": lambda ctx: ctx.gather(lambda: 1, lambda: 2),
    "spawn": lambda ctx: ctx.spawn("f"),
    "continue_as": lambda ctx: ctx.continue_as(1),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_state_that_is_not_json_fails_the_flow(inline: Inline, way: str) -> None:
    def body(ctx: Any) -> Any:
        ctx.state.bad = object()
        WAYS[way](ctx)

    assert run(inline, body) == "InvalidPayload"
    message = (inline.rival.state("r").error or {})["message"]
    assert message == "the state of step 'f' of run 'r' is not JSON: object is not JSON"
    assert len(inline.rival.state("r").steps) == 1, "no checkpoint was made"


@pytest.mark.parametrize(
    "operation", ["record_checkpoint", "record_checkpoints", "commit_flow", "spawn_child", "suspend_step"]
)
def test_it_is_stored_once_although_the_answer_was_lost(inline: Inline, operation: str) -> None:
    define(inline, lambda ctx: 1, name="child")

    def body(ctx: Any) -> Any:
        ctx.state.description = "on its way"
        match operation:
            case "record_checkpoint":
                ctx.step(lambda: 1, name="one")
            case "record_checkpoints":
                ctx.step(lambda: 1, name="one", execution_mode="inline")
            case "commit_flow":
                ctx.gather(lambda: 1, lambda: 2)
            case "spawn_child":
                ctx.spawn("child")
            case _:
                ctx.step(not_yet, max_attempts=2, base_delay=60)
        ctx.await_event("never")

    lose_answer(inline, operation)
    start(inline, body)
    assert inline.rival.state("r").status == "suspended"
    assert seen(inline) == {"description": "on its way"}


def test_the_first_part_of_a_history_has_the_state_as_it_was(inline: Inline) -> None:
    def body(ctx: Any) -> Any:
        for number in range(3):
            ctx.state.number = number
            ctx.step(lambda: 1, name="one")

    start(inline, body)
    history = inline.rival.history("r")
    states = [rebuild(history[:end]).steps["f"].state for end in range(2, len(history))]
    assert states == [None, {"number": 0}, {"number": 1}, {"number": 2}, {"number": 2}]
