"""A retry of a flow does the failed step or child again, whatever the flow did after it had received the failure."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from contextlib import suppress
from typing import Any

import pytest

from rival_workers import ChildFailed, StepFailed, flow, parallel, step
from tests.contract.test_children import statuses, waits
from tests.contract.test_flows import define, start
from tests.support.inline import Inline

pytestmark = pytest.mark.usefixtures("locks_in_order")

calls: Counter[str] = Counter()


@pytest.fixture(autouse=True)
def fresh() -> None:
    calls.clear()


def once(name: str) -> str:
    calls[name] += 1
    return name


def fails_once(name: str = "charge") -> str:
    calls[name] += 1
    if calls[name] == 1:
        raise ValueError("not this time")
    return name


class OrderFailed(Exception):
    pass


def cleans_up_in_finally(ctx: Any) -> Any:
    ctx.step(once, "reserve")
    try:
        return ctx.step(fails_once)
    finally:
        ctx.step(once, "release")


def handles_and_raises_again(ctx: Any) -> Any:
    ctx.step(once, "reserve")
    try:
        return ctx.step(fails_once)
    except StepFailed:
        ctx.step(once, "release")
        raise


def raises_from_it(ctx: Any) -> Any:
    ctx.step(once, "reserve")
    try:
        return ctx.step(fails_once)
    except StepFailed as failed:
        ctx.gather((once, "release"), ctx.now and (ctx.sleep, 0))
        raise OrderFailed("no order") from failed


def raises_another_in_the_handler(ctx: Any) -> Any:
    ctx.step(once, "reserve")
    try:
        return ctx.step(fails_once)
    except StepFailed:
        ctx.now()
        ctx.step(once, "release")
        raise OrderFailed("no order") from None


def keeps_it_and_raises_later(ctx: Any) -> Any:
    ctx.step(once, "reserve")
    failure = None
    try:
        return ctx.step(fails_once)
    except StepFailed as failed:
        failure = failed
    ctx.step(once, "release")
    raise failure


async def cleans_up_in_an_async_flow(ctx: Any) -> Any:
    await ctx.step(once, "reserve")
    try:
        return await ctx.step(fails_once)
    finally:
        await ctx.step(once, "release")


async def fails_in_a_group(ctx: Any) -> Any:
    async def lane() -> None:
        try:
            found.append(await ctx.step(fails_once))
        finally:
            with suppress(asyncio.CancelledError):
                await ctx.step(once, "release")

    found: list[str] = []
    await ctx.step(once, "reserve")
    async with asyncio.TaskGroup() as group:
        group.create_task(lane())
    return found[0]


BODIES = [
    cleans_up_in_finally,
    handles_and_raises_again,
    raises_from_it,
    raises_another_in_the_handler,
    keeps_it_and_raises_later,
    cleans_up_in_an_async_flow,
    fails_in_a_group,
]


@pytest.mark.parametrize("body", BODIES)
def test_the_failed_step_is_done_again_although_the_flow_did_others_after_it(inline: Inline, body: Any) -> None:
    define(inline, body)
    start(inline)
    assert inline.rival.state("r").status == "failed"
    assert calls == {"reserve": 1, "charge": 1, "release": 1}
    inline.rival.retry("r")
    inline.drain()
    assert inline.rival.result("r").result == "charge"
    done_at_the_end = body in (cleans_up_in_finally, cleans_up_in_an_async_flow, fails_in_a_group)
    assert calls == {"reserve": 1, "charge": 2, "release": 1 + done_at_the_end}


def test_the_preview_shows_what_the_flow_did_after_the_failure(inline: Inline) -> None:
    define(inline, cleans_up_in_finally)
    start(inline)
    preview = inline.rival.retry("r", dry_run=True)
    assert set(preview.runs_again) == {"f", "f/fails_once", "f/once~2"}


def test_a_flow_in_a_lane_of_a_plan_is_retried_the_same_way(inline: Inline) -> None:
    body = flow("f", register=False)(cleans_up_in_finally)
    inline.define("w", parallel("all", [[body], [step(lambda: once("beside"), name="beside")]]))
    start(inline, workflow="w")
    assert inline.rival.state("r").status == "failed"
    inline.rival.retry("r")
    inline.drain()
    assert inline.rival.result("r").status == "completed"
    assert calls == {"reserve": 1, "charge": 2, "release": 2, "beside": 1}


def test_a_failure_that_the_flow_caught_before_stays_and_its_replacement_that_failed_is_done_again(
    inline: Inline,
) -> None:
    def body(ctx: Any) -> Any:
        try:
            return ctx.step(fails_once, "first choice")
        except StepFailed:
            return ctx.step(fails_once, "second choice")

    define(inline, body)
    start(inline)
    inline.rival.retry("r")
    inline.drain()
    assert inline.rival.result("r").result == "second choice"
    assert calls == {"first choice": 1, "second choice": 2}


@pytest.mark.parametrize("is_async", [False, True])
def test_all_that_failed_beside_one_another_are_done_again(inline: Inline, is_async: bool) -> None:
    def body(ctx: Any) -> Any:
        try:
            return ctx.gather((fails_once, "a"), (fails_once, "b"), (once, "c"))
        finally:
            ctx.step(once, "release")

    async def async_body(ctx: Any) -> Any:
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(_awaited(ctx.step(fails_once, name))) for name in "ab"]
                tasks.append(group.create_task(_awaited(ctx.step(once, "c"))))
        finally:
            await ctx.step(once, "release")
        return [task.result() for task in tasks]

    async def _awaited(one: Any) -> Any:
        return await one

    define(inline, async_body if is_async else body)
    start(inline)
    assert inline.rival.state("r").status == "failed"
    inline.rival.retry("r")
    inline.drain()
    if is_async and inline.rival.state("r").status == "failed":
        # A TaskGroup cancels the others when the first one fails, so the second may fail now.
        inline.rival.retry("r")
        inline.drain()
    assert inline.rival.result("r").result == ["a", "b", "c"]


# -- children ---------------------------------------------------------------------------------------------


def calls_it(ctx: Any) -> Any:
    return ctx.call("child")


def spawns_it(ctx: Any) -> Any:
    return ctx.spawn("child").result()


def spawns_it_and_goes_on(ctx: Any) -> Any:
    child = ctx.spawn("child")
    ctx.step(once, "beside")
    return child.result()


async def spawns_it_async(ctx: Any) -> Any:
    return await (await ctx.spawn("child"))


CHILDREN = [calls_it, spawns_it, spawns_it_and_goes_on, spawns_it_async]


@pytest.mark.parametrize("body", [calls_it, spawns_it])
def test_a_failed_child_runs_again_although_the_flow_went_on_after_its_failure(inline: Inline, body: Any) -> None:
    def cleans_up(ctx: Any) -> Any:
        try:
            return body(ctx)
        except ChildFailed:
            ctx.step(once, "release")
            raise

    inline.define("child", step(lambda: once("before"), name="before"), step(lambda: fails_once(), name="charge"))
    define(inline, cleans_up)
    start(inline)
    assert inline.rival.state("r").status == "failed"
    inline.rival.retry("r")
    inline.drain()
    assert inline.rival.result("r").result == "charge"
    assert (calls["charge"], calls["release"]) == (2, 1)


@pytest.mark.parametrize("body", CHILDREN)
def test_a_child_that_was_cancelled_with_its_parent_goes_on_with_it(inline: Inline, body: Any) -> None:
    define(inline, waits, "child")
    define(inline, body)
    start(inline)
    assert inline.rival.cancel("r")
    assert set(statuses(inline).values()) == {"cancelled"}
    inline.rival.retry("r", by="ann")
    inline.drain()
    [child] = [run_id for run_id, status in statuses(inline).items() if run_id != "r" and status == "suspended"]
    inline.rival.send_event("go", "gone", key=child)
    inline.drain()
    assert inline.rival.result("r").result == "gone"
    assert calls["beside"] <= 1
    if body is not calls_it:
        assert child == "r/spawn:child"
        assert [one.by for one in inline.rival.history(child) if one.what == "retry_run"] == ["ann"]


def test_a_whole_family_that_was_cancelled_goes_on(inline: Inline) -> None:
    define(inline, waits, "grandchild")
    define(inline, lambda ctx: ctx.spawn("grandchild").result(), "child")
    define(inline, lambda ctx: ctx.spawn("child").result())
    start(inline)
    assert inline.rival.cancel("r")
    preview = inline.rival.retry("r", dry_run=True)
    assert preview.retried_children == ("r/spawn:child",)
    assert set(statuses(inline).values()) == {"cancelled"}
    inline.rival.retry("r")
    inline.drain()
    assert set(statuses(inline).values()) == {"suspended"}
    inline.rival.send_event("go", 1, key="r/spawn:child/spawn:grandchild")
    inline.drain()
    assert inline.rival.result("r").result == 1


def test_a_child_that_was_cancelled_by_itself_before_stays_cancelled(inline: Inline) -> None:
    def body(ctx: Any) -> Any:
        child = ctx.spawn("child")
        try:
            child.result()
        except ChildFailed as failed:
            ctx.sleep(1000)
            return failed.error["type"]

    define(inline, waits, "child")
    define(inline, body)
    start(inline)
    assert inline.rival.cancel("r/spawn:child")
    inline.drain()
    if inline.clock is not None:
        inline.clock.advance(1)
    assert inline.rival.cancel("r")
    assert inline.rival.retry("r").retried_children == ()
    inline.drain()
    assert statuses(inline) == {"r": "suspended", "r/spawn:child": "cancelled"}


def test_a_rewind_of_a_cancelled_run_goes_on_with_the_children_that_it_keeps(inline: Inline) -> None:
    def body(ctx: Any) -> Any:
        child = ctx.spawn("child")
        ctx.step(once, "work")
        return child.result()

    define(inline, waits, "child")
    define(inline, body)
    start(inline)
    assert inline.rival.cancel("r")
    assert inline.rival.rewind("r", "f/once").retried_children == ("r/spawn:child",)
    inline.drain()
    assert statuses(inline) == {"r": "suspended", "r/spawn:child": "suspended"}
    assert calls == {"work": 2}


# -- waits ------------------------------------------------------------------------------------------------


def deadlines(inline: Inline) -> list[Any]:
    return [one.due_at for one in inline.rival.state("r").steps if one.kind == "flow_wait"]


@pytest.mark.parametrize("is_async", [False, True])
def test_a_retried_wait_lasts_only_the_time_that_is_left(inline: Inline, is_async: bool) -> None:
    async def async_body(ctx: Any) -> Any:
        return await ctx.await_event("go", timeout=1000)

    define(inline, async_body if is_async else lambda ctx: ctx.await_event("go", timeout=1000))
    start(inline)
    [due] = deadlines(inline)
    assert inline.rival.cancel("r")
    if inline.clock is not None:
        inline.clock.advance(400)
    inline.rival.retry("r")
    inline.drain()
    assert inline.rival.state("r").status == "suspended"
    [again] = deadlines(inline)
    assert again == due
    if inline.clock is not None:
        inline.clock.advance(601)
        inline.drain()
        inline.keeper.run_once()
        inline.drain()
        assert (inline.rival.result("r").status, inline.rival.result("r").result) == ("completed", None)


def test_a_wait_whose_time_was_up_before_the_retry_is_over_unless_its_event_is_there(inline: Inline) -> None:
    define(inline, lambda ctx: ctx.await_event("go", key=ctx.run.run_id, timeout=0.2))
    for run_id in ("r", "s"):
        start(inline, run_id=run_id)
        assert inline.rival.cancel(run_id)
    inline.rival.send_event("go", "came", key="s")
    inline.drain()
    _wait(inline, 0.3)
    for run_id in ("r", "s"):
        inline.rival.retry(run_id)
        inline.drain()
    assert [inline.rival.result(run_id).result for run_id in ("r", "s")] == [None, "came"]


def _wait(inline: Inline, seconds: float) -> None:
    if inline.clock is not None:
        inline.clock.advance(seconds)
    else:
        time.sleep(seconds)


@pytest.mark.parametrize("timeout", [None, 1000])
def test_a_retried_wait_takes_the_next_event_once(inline: Inline, timeout: float | None) -> None:
    define(inline, lambda ctx: [ctx.await_event("go", timeout=timeout), ctx.await_event("go", timeout=timeout)])
    start(inline)
    for _ in range(2):
        assert inline.rival.cancel("r")
        inline.rival.retry("r")
        inline.drain()
    for payload in (1, 2):
        inline.rival.send_event("go", payload)
        inline.drain()
    assert inline.rival.result("r").result == [1, 2]


def test_a_cancelled_run_whose_wait_was_kept_takes_no_event_until_it_is_retried(inline: Inline) -> None:
    define(inline, lambda ctx: ctx.await_event("go"))
    start(inline)
    assert inline.rival.cancel("r")
    inline.rival.retry("r")
    assert inline.rival.cancel("r"), "before a worker has gone on with it"
    inline.rival.send_event("go", 7)
    inline.drain()
    assert [event.status for event in inline.rival.events()] == ["kept"]
    inline.rival.retry("r")
    inline.drain()
    assert inline.rival.result("r").result == 7
