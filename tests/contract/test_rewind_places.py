"""A rewind to places below a step: checkpoints of a flow, items of a for_each, iterations of a loop."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from rival_client import NotPossible
from rival_workers import StepError, flow, for_each, loop, step
from tests.support.inline import Inline
from tests.support.output import whole

pytestmark = pytest.mark.usefixtures("locks_in_order")


def _run(inline: Inline, *steps: Any) -> None:
    inline.define("w", *steps)
    inline.rival.run("w", {}, run_id="r")
    inline.drain()


def _rewound(inline: Inline, done: list[Any], path: str) -> list[Any]:
    """What ran again; the preview has named the step and changed nothing."""
    before = inline.rival.history("r")
    assert inline.rival.rewind("r", path, dry_run=True).opened
    assert inline.rival.history("r") == before
    done.clear()
    inline.rival.rewind("r", path)
    inline.drain()
    assert inline.rival.state("r").status == "completed"
    return done


def _named(done: list[Any], name: str) -> Any:
    def work() -> str:
        done.append(name)
        return name

    work.__name__ = name
    return work


AGAIN = {
    "fl/one": ["one", "two", "three", "last"],
    "fl/two": ["two", "three", "last"],
    "fl/three": ["three", "last"],
}


@pytest.mark.parametrize(("path", "again"), AGAIN.items())
def test_a_flow_goes_back_to_a_checkpoint(inline: Inline, path: str, again: list[str]) -> None:
    done: list[Any] = []
    functions = [_named(done, name) for name in ("one", "two", "three")]
    body = flow("fl", register=False)(lambda ctx: [ctx.step(function) for function in functions])
    _run(inline, body, step(_named(done, "last"), name="last"))
    assert done == ["one", "two", "three", "last"]
    assert _rewound(inline, done, path) == again
    assert inline.rival.result("r").results["fl"] == ["one", "two", "three"]


def test_what_other_lanes_did_without_knowing_of_the_checkpoint_stays(inline: Inline) -> None:
    done: list[Any] = []
    one, two, three = (_named(done, name) for name in ("one", "two", "three"))
    _run(inline, flow("fl", register=False)(lambda ctx: [*ctx.gather((one,), (two,)), ctx.step(three)]))
    assert _rewound(inline, done, "fl/two") == ["two", "three"]


def test_an_item_goes_back_alone(inline: Inline) -> None:
    done: list[Any] = []

    def note(name: str) -> Any:
        return step(lambda ctx: done.append((name, ctx.item)), name=name)

    _run(inline, for_each("f", items=lambda: [0, 1, 2], do=[note("a"), note("b")], concurrency=1), step(int, name="z"))
    assert _rewound(inline, done, "f[1]") == [("a", 1), ("b", 1)]
    assert _rewound(inline, done, "f[2]/b") == [("b", 2)]


def test_a_loop_goes_back_to_an_iteration(inline: Inline) -> None:
    done: list[Any] = []
    _run(
        inline, loop("l", do=[step(lambda: done.append("x"), name="x")], until=lambda: len(done) >= 3, max_iterations=9)
    )
    assert len(done) == 3
    inline.rival.rewind("r", "l[1]")
    inline.drain()
    state = inline.rival.state("r")
    assert (state.status, len(done)) == ("completed", 4)
    assert sorted(one.path for one in state.steps if one.path.endswith("/x")) == ["l[0]/x", "l[1]/x"]


KNOWN = "has begun (known: f, f[0]/a, f[1]/a, fl, fl/int)"


@pytest.mark.parametrize(
    ("path", "problem"),
    [
        ("f[7]", f"no step 'f[7]/a' {KNOWN}"),
        ("fl/none", f"no step 'fl/none' {KNOWN}"),
        ("x[1]", f"no step 'x[1]' {KNOWN}"),
        ("f[1]!on_error", "'f[1]!on_error' is not a step: rewind to 'f[1]' instead"),
        ("!on_error", "'!on_error' is not a step: rewind to the step itself instead"),
    ],
)
def test_a_place_that_is_not_there_is_refused_with_the_known_ones(inline: Inline, path: str, problem: str) -> None:
    body = flow("fl", register=False)(lambda ctx: ctx.step(int))
    _run(inline, for_each("f", items=lambda: [0, 1], do=[step(lambda: 1, name="a")]), body)
    with pytest.raises(NotPossible, match=whole(f"Cannot rewind run 'r': {problem}. Nothing was changed.")):
        inline.rival.rewind("r", path)


def test_a_wait_of_a_flow_is_a_checkpoint_for_operators(inline: Inline) -> None:
    _run(inline, flow("fl", register=False)(lambda ctx: ctx.await_event("paid", timeout=60)))
    [wait] = [one.path for one in inline.rival.state("r").steps if one.path.startswith("fl/")]
    with pytest.raises(NotPossible) as raised:
        inline.rival.set_result("r", wait, 1, reason="paid")
    instead = f"rewind the run to {wait!r} to run it again, or set_result 'fl' as a whole"
    why = f"{wait!r} is a checkpoint of flow 'fl': {instead}"
    assert str(raised.value) == f"Cannot set_result run 'r': {why}. Nothing was changed."


@pytest.mark.parametrize("verb", ["skip", "set_result"])
def test_the_checkpoint_at_which_a_flow_failed_is_repeated_or_the_flow_is_settled(inline: Inline, verb: str) -> None:
    def fails() -> None:
        raise ValueError("no")

    _run(inline, flow("fl", register=False)(lambda ctx: ctx.step(fails, name="book")))
    result = (1,) if verb == "set_result" else ()
    with pytest.raises(NotPossible) as raised:
        getattr(inline.rival, verb)("r", "fl/book", *result, reason="it is booked")
    instead = f"rewind the run to 'fl/book' to run it again, or {verb} 'fl' as a whole"
    why = f"'fl/book' is a checkpoint of flow 'fl': {instead}"
    assert str(raised.value) == f"Cannot {verb} run 'r': {why}. Nothing was changed."
    with pytest.raises(
        NotPossible,
        match=whole(
            "Cannot … run 'r': it is failed, and not at 'fl/nothing' but at fl: … that one, or rewind the run "
            "to an earlier step. Nothing was changed."
        ),
    ):
        getattr(inline.rival, verb)("r", "fl/nothing", *result, reason="it is booked")


def test_a_retried_flow_sleeps_only_the_time_that_is_left(inline: Inline) -> None:
    _run(inline, flow("fl", register=False)(lambda ctx: ctx.sleep(1000) or 1))
    due = [one.due_at for one in inline.rival.state("r").steps if one.kind == "sleep"]
    assert inline.rival.cancel("r")
    time.sleep(0.01)
    inline.rival.retry("r")
    inline.drain()
    state = inline.rival.state("r")
    assert state.status == "suspended"
    assert [one.due_at for one in state.steps if one.kind == "sleep"] == due


def test_a_skip_after_compensations_says_what_to_do(inline: Inline) -> None:
    def fails() -> None:
        raise StepError("no")

    _run(inline, step(lambda: 1, name="charge", compensate=lambda: None), step(fails, name="ship"))
    assert inline.rival.state("r").status == "failed"
    with pytest.raises(
        NotPossible,
        match=whole(
            "Cannot skip run 'r': it is failed, and its compensations have undone what came before 'ship'. A "
            "retry begins again with charge: retry it, and skip the step when the run has reached it. Nothing "
            "was changed."
        ),
    ):
        inline.rival.skip("r", "ship", reason="done by hand")


# -- lanes of a flow --------------------------------------------------------------------------------------


def _lanes(done: list[Any], *, first: str) -> Any:
    """Two lanes of two steps each. `first`: the lane whose first step ends first; the others follow it."""

    async def body(ctx: Any) -> Any:
        second_may_go = asyncio.Event()

        async def lane(name: str) -> list[Any]:
            if name != first:
                await second_may_go.wait()
            one = await ctx.step(_named(done, f"{name}1"))
            second_may_go.set()
            return [one, await ctx.step(_named(done, f"{name}2"))]

        lanes = [asyncio.create_task(lane(name), name=name) for name in ("a", "b")]
        return await asyncio.gather(*lanes)

    return flow("fl", register=False)(body)


def test_a_rewind_of_one_lane_keeps_what_others_reached_before_its_end_and_repeats_what_they_reached_after(
    inline: Inline,
) -> None:
    """The other lane may have had something from this one, so all that it reached later is done again."""
    done: list[Any] = []
    _run(inline, _lanes(done, first="a"))
    assert done[0] == "a1"
    path = next(one.path for one in inline.rival.state("r").steps if one.path.endswith(":a1"))
    preview = inline.rival.rewind("r", path, dry_run=True)
    assert {one.rpartition(":")[2] for one in preview.runs_again} == {"fl", "a1", "a2", "b1", "b2"}
    assert sorted(_rewound(inline, done, path)) == ["a1", "a2", "b1", "b2"]
    last = next(one.path for one in inline.rival.state("r").steps if one.path.endswith(":b2"))
    assert _rewound(inline, done, last) == ["b2"]
    assert inline.rival.result("r").results["fl"] == [["a1", "a2"], ["b1", "b2"]]


def test_a_rewind_in_a_branch_or_a_loop_of_a_flow_repeats_what_came_after(inline: Inline) -> None:
    done: list[Any] = []

    def body(ctx: Any) -> Any:
        pages = [ctx.step(_named(done, f"page{number}"), name="page") for number in range(3)]
        return [*pages, ctx.step(_named(done, "many" if len(pages) > 2 else "few"))]

    _run(inline, flow("fl", register=False)(body))
    assert inline.rival.rewind("r", "fl/page~2", dry_run=True).runs_again == ("fl", "fl/many", "fl/page~2", "fl/page~3")
    assert _rewound(inline, done, "fl/page~2") == ["page1", "page2", "many"]
    assert _rewound(inline, done, "fl/many") == ["many"]


def test_a_rewind_keeps_the_values_and_children_that_came_before(inline: Inline) -> None:
    inline.define("child", step(lambda: 1, name="only"))
    done: list[Any] = []

    def body(ctx: Any) -> Any:
        key, child = ctx.uuid(), ctx.spawn("child")
        done.append(ctx.step(lambda: str(key), name="one"))
        at = ctx.now()
        return [ctx.step(lambda: at.isoformat(), name="two"), str(key), child, str(ctx.uuid())]

    _run(inline, flow("fl", register=False)(body))
    at, key, child, last = inline.rival.result("r").results["fl"]
    _rewound(inline, done, "fl/two")
    now_at, now_key, now_child, now_last = inline.rival.result("r").results["fl"]
    assert (now_at, now_key, now_child) == (at, key, child)
    assert now_last != last, "what came after is made again"
    assert [run.run_id for run in inline.rival.runs(workflow="child")] == ["r/spawn:child"]


@pytest.mark.parametrize(("path", "same"), [("fl/uuid~2", [True, False, False]), ("fl/spawn:child", [True, False])])
def test_a_value_or_a_spawn_that_a_flow_goes_back_to_is_made_again_with_all_after_it(
    inline: Inline, path: str, same: list[bool]
) -> None:
    inline.define("child", step(lambda: 1, name="only"))
    done: list[Any] = []

    def body(ctx: Any) -> Any:
        if path == "fl/spawn:child":
            first, child = ctx.uuid(), ctx.spawn("child")
            child.result()
            return [str(first), child]
        first, second = ctx.uuid(), ctx.uuid()
        return [str(first), str(second), ctx.step(lambda: str(second), name="uses")]

    _run(inline, flow("fl", register=False)(body))
    before = inline.rival.result("r").results["fl"]
    _rewound(inline, done, path)
    after = inline.rival.result("r").results["fl"]
    assert [one == other for one, other in zip(before, after, strict=True)] == same


@pytest.mark.parametrize("place", ["[]", "f[]", "f[x]", "]", "f[", "f[\u00b2]", f"f[{'9' * 900}]", "f[]/a", "f[0]]"])
def test_a_place_whose_number_is_none_is_refused(inline: Inline, place: str) -> None:
    inline.define("w", for_each("f", items=lambda: [1], do=[step(lambda: 1, name="a")]))
    inline.rival.run("w", run_id="r")
    inline.drain()
    with pytest.raises(NotPossible):
        inline.rival.rewind("r", place)
