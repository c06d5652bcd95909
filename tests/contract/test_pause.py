"""A paused run starts nothing from the moment `pause` has returned, and goes on where it was when it is resumed."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from rival_workers import flow, for_each, step
from tests.support.inline import Inline

pytestmark = pytest.mark.usefixtures("locks_in_order")


def _pausing(inline: Inline, done: list[str], name: str) -> Any:
    """A step during which an operator pauses its run."""

    def body() -> str:
        done.append(name)
        assert inline.rival.pause("r")
        return name

    return step(body, name=name)


def _noting(done: list[str], name: str) -> Any:
    return step(lambda: done.append(name), name=name)


def _go_on(inline: Inline) -> None:
    assert inline.rival.resume("r")
    inline.drain()
    assert inline.rival.state("r").status == "completed"


def test_a_worker_that_goes_through_steps_in_place_stops_behind_the_running_one(inline: Inline) -> None:
    done: list[str] = []
    inline.define("w", _noting(done, "a"), _pausing(inline, done, "b"), _noting(done, "c"), _noting(done, "d"))
    inline.rival.run("w", {}, run_id="r")
    inline.drain()
    state = inline.rival.state("r")
    assert (done, state.status, state.is_paused) == (["a", "b"], "running", True)
    assert {one.path: one.status for one in state.steps} == {"a": "completed", "b": "completed", "c": "pending"}
    _go_on(inline)
    assert done == ["a", "b", "c", "d"]


def test_lanes_take_no_further_item(inline: Inline) -> None:
    done: list[Any] = []

    def body(ctx: Any) -> None:
        done.append(ctx.item)
        if ctx.item == 1:
            assert inline.rival.pause("r")

    inline.define("w", for_each("f", items=lambda: [0, 1, 2, 3], do=[step(body, name="a")], concurrency=1))
    inline.rival.run("w", {}, run_id="r")
    inline.drain()
    assert done == [0, 1]
    _go_on(inline)
    assert done == [0, 1, 2, 3]


def test_the_last_step_of_a_paused_run_completes_it(inline: Inline) -> None:
    inline.define("w", _pausing(inline, [], "a"))
    inline.rival.run("w", {}, run_id="r")
    inline.drain()
    assert inline.rival.state("r").status == "completed"


@pytest.mark.parametrize("how", ["one after the other", "gathered", "async", "spawned"])
def test_a_flow_stops_at_its_next_checkpoint_and_repeats_nothing(inline: Inline, how: str) -> None:
    done: list[Any] = []

    def work(name: str) -> str:
        done.append(name)
        if name == "b":
            assert inline.rival.pause("r")
        return name

    def gathered(ctx: Any) -> Any:
        return [*ctx.gather((work, "a"), (work, "b")), ctx.step(work, "c")]

    def in_order(ctx: Any) -> Any:
        return [ctx.step(work, name) for name in "abc"]

    def spawned(ctx: Any) -> Any:
        found = [ctx.step(work, "a"), ctx.step(work, "b")]
        ctx.spawn("child", {})
        return [*found, ctx.step(work, "c")]

    async def in_async(ctx: Any) -> Any:
        return [await ctx.step(work, name) for name in "abc"]

    inline.define("child", step(lambda: 1, name="one"))
    body: Any = {"gathered": gathered, "async": in_async, "spawned": spawned}.get(how, in_order)
    inline.define("w", flow("fl", register=False)(body))
    inline.rival.run("w", {}, run_id="r")
    inline.drain()
    state = inline.rival.state("r")
    assert (sorted(done), state.is_paused, state.steps[0].status) == (["a", "b"], True, "pending")
    _go_on(inline)
    assert sorted(done) == ["a", "b", "c"]
    assert inline.rival.result("r").result == ["a", "b", "c"]


@pytest.mark.parametrize("turn", range(3))
def test_nothing_is_claimed_after_pause_has_returned(postgres_url: str, turn: int) -> None:
    """A worker goes through many short steps in place while an operator pauses: at any moment, and more than once."""
    inline = Inline(postgres_url, continuation_budget=60.0)
    begun: list[int] = []
    inline.define("w", *(step(lambda n=n: begun.append(n), name=f"s{n}") for n in range(300)))
    inline.rival.run("w", {}, run_id="r")
    with ThreadPoolExecutor(1) as threads:
        while True:
            going = threads.submit(inline.drain)
            threading.Event().wait(0.03 + 0.01 * turn)
            if not inline.rival.pause("r"):
                break
            # What was being claimed when the pause came in has been claimed before it: at most that one begins now.
            seen = len(begun)
            going.result(30)
            assert len(begun) <= seen + 1
            if not inline.rival.resume("r"):
                break
        going.result(30)
    assert inline.rival.state("r").status == "completed"
    inline.drain()
    assert begun == list(range(300))
    inline.close()
