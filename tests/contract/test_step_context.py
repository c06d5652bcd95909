"""What steps and handlers see of their run: its id, whether it continues, and the iteration before."""

from __future__ import annotations

import asyncio
import gc
import weakref
from typing import Any

import pytest

from rival_workers import StepError, flow, for_each, loop, parallel, step, workflow
from rival_workers.definition.define import define_workflow
from tests.support.inline import Inline


def carry_out(inline: Inline, *steps: Any, **options: Any) -> Any:
    inline.define("w", *steps, **options)
    inline.rival.run("w", None, "r")
    inline.drain()
    return inline.rival.result("r")


def test_a_step_has_the_runs_id_under_the_name_that_the_client_uses(inline: Inline) -> None:
    def look(run: Any, ctx: Any) -> list[str]:
        return [run.run_id, ctx.run.run_id]

    assert carry_out(inline, look).result == ["r", "r"]


def test_the_context_of_a_step_is_freed_at_its_end_without_a_garbage_collection(inline: Inline) -> None:
    contexts: list[weakref.ref[Any]] = []

    def first(ctx: Any, input: Any, state: Any) -> int:
        contexts.append(weakref.ref(ctx))
        return 1

    def second(ctx: Any, steps: Any, log: Any, last_step: Any, run: Any) -> Any:
        contexts.append(weakref.ref(ctx))
        return steps.first.result

    gc.disable()
    try:
        assert carry_out(inline, first, second).result == 1
        assert [context() for context in contexts] == [None, None]
    finally:
        gc.enable()


def test_the_context_of_a_flow_is_freed_at_its_end_without_a_garbage_collection(inline: Inline) -> None:
    contexts: list[weakref.ref[Any]] = []

    @flow("f")
    def its_flow(ctx: Any, state: Any) -> list[int]:
        contexts.append(weakref.ref(ctx))
        both = ctx.gather(step(lambda: 1, name="one"), step(lambda: 2, name="two"))
        return [*both, ctx.step(lambda: 3, name="three")]

    @flow("async_f")
    async def async_flow(ctx: Any, state: Any) -> list[int]:
        contexts.append(weakref.ref(ctx))
        both = await asyncio.gather(ctx.step(lambda: 1, name="one"), ctx.step(lambda: 2, name="two"))
        return [*both, await ctx.step(lambda: 3, name="three")]

    gc.disable()
    try:
        assert carry_out(inline, its_flow, async_flow).result == [1, 2, 3]
        assert [context() for context in contexts] == [None, None]
    finally:
        gc.enable()


class Handler:
    """A handler that keeps what it has seen."""

    def __init__(self) -> None:
        self.saw: list[tuple[bool, bool, str]] = []

    def __call__(self, ctx: Any, run_continues: bool, workflow_state: Any) -> None:
        self.saw.append((run_continues, ctx.run_continues, workflow_state.status))


CONTINUES, FAILS = (True, True, "running"), (False, False, "failing")


@pytest.mark.parametrize(("behavior", "seen"), [("continue", CONTINUES), ("stop", FAILS)])
def test_a_handler_sees_whether_the_run_continues(inline: Inline, behavior: Any, seen: Any) -> None:
    def fail() -> None:
        raise StepError("no", behavior=behavior)

    handler = Handler()
    result = carry_out(inline, step(fail, on_error=handler), step(lambda: 1, name="after"))
    assert handler.saw == [seen]
    assert result.status == ("completed" if seen is CONTINUES else "failed")


def boom() -> None:
    raise ValueError("no")


def one_item() -> list[int]:
    return [1]


def around(kind: str, body: list[Any]) -> tuple[Any, bool]:
    """A composite with this body, and whether it keeps failures to itself."""
    nested = define_workflow("nested", body)
    return {
        "for_each continue": (for_each("c", items=one_item, do=body, on_failure="continue"), True),
        "for_each cancel": (for_each("c", items=one_item, do=body), False),
        "parallel continue": (parallel("c", body, on_failure="continue"), True),
        "workflow that keeps it": (workflow(nested, name="c", propagate_failure=False), True),
        "workflow": (workflow(nested, name="c"), False),
    }[kind]


@pytest.mark.parametrize(
    "kind", ["for_each continue", "for_each cancel", "parallel continue", "workflow that keeps it", "workflow"]
)
def test_a_handler_sees_that_something_around_its_step_keeps_the_failure(inline: Inline, kind: str) -> None:
    handler, of_all = Handler(), Handler()
    composite, keeps = around(kind, [step(boom, on_error=handler)])
    result = carry_out(inline, composite, step(lambda: 1, name="after"), on_error=of_all)
    assert result.status == ("completed" if keeps else "failed")
    assert handler.saw == [CONTINUES if keeps else FAILS]
    assert of_all.saw == ([] if keeps else [FAILS])


def enough(index: int) -> bool:
    return index >= 2


def test_a_steps_own_name_in_a_loop_is_the_iteration_before(inline: Inline) -> None:
    seen: list[Any] = []

    def count(steps: Any, index: int) -> int:
        before = steps.count
        seen.append((before.status, before.result, steps["count"].result))
        return index * 10

    carry_out(inline, loop("l", do=[count, step(lambda: None, name="other")], until=enough, max_iterations=5))
    assert seen == [("running", None, None), ("completed", 0, 0), ("completed", 10, 10)]


def test_a_retry_within_a_loop_also_sees_the_iteration_before(inline: Inline) -> None:
    seen: list[Any] = []

    def count(steps: Any, index: int, run: Any) -> int:
        seen.append(steps.count.result)
        if run.attempt == 1:
            raise StepError("again", behavior="retry")
        return index

    counting = step(count, max_attempts=2, backoff="none")
    carry_out(inline, loop("l", do=[counting], until=enough, max_iterations=5))
    assert seen == [None, None, 0, 0, 1, 1]


def test_the_composite_around_a_step_is_that_of_the_iteration_before(inline: Inline) -> None:
    seen: list[Any] = []

    def look(steps: Any, index: int) -> int:
        seen.append(steps.both.result)
        return index

    both = parallel("both", [step(look, name="a"), step(lambda: 7, name="b")])
    carry_out(inline, loop("l", do=[both], until=enough, max_iterations=5))
    assert seen == [None, {"a": 0, "b": 7}, {"a": 1, "b": 7}]


def test_the_results_of_a_run_contain_its_flows(inline: Inline) -> None:
    @flow("fl", register=False)
    def fl(ctx: Any) -> int:
        return int(ctx.step(lambda: 2, name="two")) + 1

    result = carry_out(inline, step(lambda: 1, name="one"), fl)
    assert result.results == {"one": 1, "fl": 3, "fl/two": 2}
