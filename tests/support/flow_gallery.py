"""Flows in which several things happen at once, as users of other engines write them, with what must come of each.

Loaded by real workers as a workflow file and by tests in process, so that both run the very same things.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import Any

from rival_workers import ChildFailed, StepFailed, flow

#: Flow -> its result.
RESULTS: dict[str, Any] = {}


def gives(result: Any) -> Any:
    def decorate(function: Any) -> Any:
        made = flow(f"gallery-{function.__name__.replace('_', '-')}")(function)
        RESULTS[made.name] = result
        return made

    return decorate


def say(value: Any, seconds: float = 0.0) -> Any:
    time.sleep(seconds)
    return value


async def say_async(value: Any, seconds: float = 0.0) -> Any:
    await asyncio.sleep(seconds)
    return value


def break_down(why: str) -> None:
    raise ValueError(why)


@flow("gallery-child")
def child(ctx: Any, input: Any) -> Any:
    ctx.sleep(input.get("seconds", 0))
    if input.get("breaks"):
        raise ValueError("broken")
    return input["k"]


CHILD = "gallery-child"


# -- several of a kind --------------------------------------------------------------------------------------


@gives([0, 1, 2, 3, 4])
async def children_gathered(ctx: Any) -> Any:
    return await asyncio.gather(*[ctx.call(CHILD, {"k": k, "seconds": 0.25 - 0.05 * k}) for k in range(5)])


@gives([0, 1, 2, 3])
def children_gathered_by_a_sync_flow(ctx: Any) -> Any:
    return ctx.gather(*((ctx.call, CHILD, {"k": k, "seconds": 0.2 - 0.05 * k}) for k in range(4)))


@gives([0, 1, 2, 3, 4, 5])
async def async_steps_gathered(ctx: Any) -> Any:
    found = await asyncio.gather(*[ctx.step(say_async, k, 0.02 * (6 - k)) for k in range(6)])
    await ctx.sleep(0.05)
    return found


@gives([0, 1, 4])
async def lanes_of_several_steps(ctx: Any) -> Any:
    async def lane(k: int) -> Any:
        first = await ctx.step(say, k)
        await ctx.sleep(0.05 * (3 - k))
        return await ctx.step(say, first * k)

    return await asyncio.gather(*[lane(k) for k in range(3)])


@gives([["a", "b"], "StepFailed"])
async def exceptions_returned_by_gather(ctx: Any) -> Any:
    found = await asyncio.gather(
        ctx.step(say, "a"), ctx.step(break_down, "no"), ctx.step(say, "b"), return_exceptions=True
    )
    await ctx.sleep(0.05)
    return [[found[0], found[2]], type(found[1]).__name__]


@gives(["first failure", 2])
async def the_first_failure_of_a_gather_is_raised(ctx: Any) -> Any:
    slow = asyncio.create_task(ctx.call(CHILD, {"k": 2, "seconds": 0.1}))
    try:
        await asyncio.gather(slow, ctx.step(break_down, "first failure"))
    except StepFailed as failed:
        return [failed.error["message"], await slow]


@gives(["broken", "kept"])
async def a_child_that_fails_among_others(ctx: Any) -> Any:
    bad, good = ctx.call(CHILD, {"breaks": True}), ctx.call(CHILD, {"k": "kept", "seconds": 0.1})
    found = await asyncio.gather(bad, good, return_exceptions=True)
    assert isinstance(found[0], ChildFailed)
    return [found[0].error["message"], found[1]]


@gives(60)
async def a_fan_out_with_a_bound(ctx: Any) -> Any:
    bound = asyncio.Semaphore(3)

    async def lane(k: int) -> Any:
        async with bound:
            return await ctx.step(say, k * 4)

    return sum(await asyncio.gather(*[lane(k) for k in range(6)]))


@gives([0, 10, 20, 30])
async def a_gather_within_a_gather(ctx: Any) -> Any:
    async def half(k: int) -> Any:
        return await asyncio.gather(ctx.step(say, k * 10), ctx.step(say, (k + 1) * 10))

    left, right = await asyncio.gather(half(0), half(2))
    return [*left, *right]


# -- what comes first ----------------------------------------------------------------------------------------


@gives("timeout")
async def a_sleep_with_a_timeout(ctx: Any) -> Any:
    try:
        await asyncio.wait_for(ctx.sleep(30), 0.3)
    except TimeoutError:
        return "timeout"


@gives(["timeout", "then"])
async def a_child_with_a_timeout(ctx: Any) -> Any:
    found = []
    try:
        async with asyncio.timeout(0.2):
            await ctx.call(CHILD, {"k": 1, "seconds": 3600})
    except TimeoutError:
        found.append("timeout")
    found.append(await ctx.step(say, "then"))
    return found


@gives(["quick", 1])
async def the_first_of_two_tasks(ctx: Any) -> Any:
    slow = asyncio.create_task(ctx.sleep(3600))
    quick = asyncio.create_task(ctx.step(say, "quick"))
    done, pending = await asyncio.wait({slow, quick}, return_when=asyncio.FIRST_COMPLETED)
    await ctx.sleep(0.05)
    return [done.pop().result(), len(pending)]


@gives([1, None])
def a_timer_against_an_event(ctx: Any) -> Any:
    won = ctx.first(ctx.start.await_event("never", key=ctx.run.run_id), (ctx.sleep, 0.1), cancel_others=True)
    ctx.sleep(0.05)
    return [won.index, won.result()]


@gives([0, 1, 2])
async def tasks_as_they_are_completed(ctx: Any) -> Any:
    calls = [ctx.call(CHILD, {"k": k, "seconds": 0.1 * k}) for k in range(3)]
    found = sorted([await one for one in asyncio.as_completed(calls)])
    await ctx.sleep(0.05)
    return found


@gives("hello")
async def an_event_that_another_lane_sends_for(ctx: Any) -> Any:
    inbox: asyncio.Queue[Any] = asyncio.Queue()

    async def listen() -> None:
        await inbox.put(await ctx.call(CHILD, {"k": "hello"}))

    async with asyncio.TaskGroup() as group:
        group.create_task(listen(), name="listener")
        found = await inbox.get()
    return await ctx.step(say, found)


# -- children that are awaited later -------------------------------------------------------------------------


@gives(["later", "again"])
def a_spawned_child_awaited_later(ctx: Any) -> Any:
    handle = ctx.spawn(CHILD, {"k": "later", "seconds": 0.1})
    again = ctx.spawn(CHILD, {"k": "again"})
    ctx.sleep(0.2)
    return [handle.result(), again.result()]


@gives([0, 1, 2])
async def spawned_children_gathered(ctx: Any) -> Any:
    handles = [await ctx.spawn(CHILD, {"k": k, "seconds": 0.05 * k}) for k in range(3)]
    await ctx.sleep(0.07)
    return await asyncio.gather(*handles)


# -- cleaning up ----------------------------------------------------------------------------------------------


@gives(["open", "work", "close"])
async def a_resource_around_a_wait(ctx: Any) -> Any:
    log = []

    @contextlib.asynccontextmanager
    async def resource() -> Any:
        log.append(await ctx.step(say, "open"))
        try:
            yield
        finally:
            log.append(await ctx.step(say, "close"))

    async with resource():
        await ctx.sleep(0.1)
        log.append(await ctx.step(say, "work"))
    return log


@gives(["undone b", "undone a"])
async def a_saga(ctx: Any) -> Any:
    undo: list[str] = []
    try:
        for name in ("a", "b"):
            await ctx.step(say, name)
            undo.append(f"undone {name}")
            await ctx.sleep(0.02)
        await ctx.step(break_down, "no")
    except StepFailed:
        return [await ctx.step(say, one) for one in reversed(undo)]


@gives(3)
async def a_loop_that_begins_again(ctx: Any, input: Any) -> Any:
    turn = input or 0
    await asyncio.gather(ctx.step(say, turn), ctx.sleep(0.02))
    return turn if turn == 3 else await ctx.continue_as(turn + 1)
