"""Workflows of the scenarios about concurrency inside a flow. Loaded by workers and by library mode."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable
from typing import Any

from rival_workers import create_workflow, flow
from tests.scenarios.effects import note


def double(number: int) -> int:
    return 2 * number


def slow_double(number: int, seconds: float) -> int:
    time.sleep(seconds)
    return 2 * number


async def async_double(number: int) -> int:
    await asyncio.sleep(0.01)
    return 2 * number


def fail(text: str) -> None:
    raise ValueError(text)


create_workflow("doubled").step(lambda input: 2 * input, name="double").register()
create_workflow("failing").step(lambda input: fail(input), name="fail").register()


@flow("sleeps-then-doubles")
def sleeps_then_doubles(ctx: Any, input: Any) -> int:
    ctx.sleep(input["seconds"])
    return int(2 * input["number"])


@flow("gather-many-steps")
async def gather_many_steps(ctx: Any, input: int) -> list[int]:
    """DBOS: test_gather_manysteps."""
    results = await asyncio.gather(*[ctx.step(slow_double, n, 0.002 * ((n * 7) % 5)) for n in range(input)])
    await ctx.sleep(0.05)
    return results


@flow("gather-steps-of-several-names")
async def gather_steps_of_several_names(ctx: Any) -> list[int]:
    """DBOS: test_gather_distinct_steps_deterministic_order."""
    steps = [ctx.step(slow_double, n, 0.03 - 0.01 * n, name=f"step-{n % 2}") for n in range(4)]
    results = await asyncio.gather(*steps)
    await ctx.sleep(0.05)
    return [*results, await ctx.step(double, 10)]


@flow("gather-many-things")
async def gather_many_things(ctx: Any) -> list[Any]:
    """DBOS: test_gather_manythings."""

    async def lane(number: int) -> int:
        first = await ctx.step(async_double, number)
        await ctx.sleep(0.02 * (3 - number))
        return int(await ctx.step(double, first))

    return await asyncio.gather(
        ctx.step(double, 1),
        ctx.step(async_double, 2),
        ctx.call("doubled", 3),
        ctx.call("sleeps-then-doubles", {"seconds": 0.05, "number": 4}),
        ctx.await_event("things", key=ctx.run.run_id),
        ctx.sleep(0.05),
        *[lane(n) for n in range(3)],
    )


@flow("gather-children-of-one-workflow")
async def gather_children_of_one_workflow(ctx: Any, input: int) -> list[int]:
    """Hatchet: durable bulk spawn; the children end in the reverse order."""
    return await asyncio.gather(
        *[ctx.call("sleeps-then-doubles", {"seconds": 0.03 * (input - n), "number": n}) for n in range(input)]
    )


@flow("sync-children-at-once")
def sync_children_at_once(ctx: Any, input: int) -> list[int]:
    return list(ctx.gather(*[(ctx.call, "doubled", n) for n in range(input)]))


@flow("gather-keeps-exceptions")
async def gather_keeps_exceptions(ctx: Any) -> list[str]:
    """Hatchet: return_exceptions."""
    found = await asyncio.gather(
        ctx.call("doubled", 1), ctx.call("failing", "child"), ctx.step(fail, "step"), return_exceptions=True
    )
    await ctx.sleep(0.01)
    return [one if isinstance(one, int) else type(one).__name__ for one in found]


@flow("wait-first-completed")
async def wait_first_completed(ctx: Any) -> list[Any]:
    """DBOS: test_asyncio_wait."""
    quick = asyncio.create_task(_value(ctx.step(double, 1)))
    slow = asyncio.create_task(_value(ctx.sleep(0.3)))
    done, pending = await asyncio.wait([slow, quick], return_when=asyncio.FIRST_COMPLETED)
    seen = [quick in done, slow in pending]
    await slow
    return [*seen, quick.result()]


@flow("wait-first-exception")
async def wait_first_exception(ctx: Any) -> list[bool]:
    """DBOS: test_asyncio_wait_first_exception."""
    bad = asyncio.create_task(_value(ctx.step(fail, "bad")))
    slow = asyncio.create_task(_value(ctx.sleep(60)))
    done, pending = await asyncio.wait([slow, bad], return_when=asyncio.FIRST_EXCEPTION)
    slow.cancel()
    return [bad in done, bad.exception() is not None, slow in pending]


@flow("wait-all")
async def wait_all(ctx: Any) -> list[Any]:
    """DBOS: test_asyncio_wait_all_completed."""
    tasks = [asyncio.create_task(_value(ctx.step(double, n))) for n in range(4)]
    done, pending = await asyncio.wait(tasks)
    await ctx.sleep(0.01)
    return [len(done), len(pending), [task.result() for task in tasks]]


@flow("wait-with-timeout")
async def wait_with_timeout(ctx: Any) -> list[int]:
    """DBOS: test_asyncio_wait_timeout."""
    slow = asyncio.create_task(_value(ctx.sleep(60)))
    quick = asyncio.create_task(_value(ctx.sleep(0.01)))
    done, pending = await asyncio.wait([slow, quick], timeout=0.3)
    slow.cancel()
    return [len(done), len(pending)]


@flow("as-completed")
async def as_completed(ctx: Any) -> list[int]:
    """Temporal: test_workflow_as_completed_utility."""

    async def after(seconds: float, number: int) -> int:
        await ctx.sleep(seconds)
        return number

    tasks = [asyncio.create_task(after(seconds, n)) for n, seconds in enumerate((0.3, 0.01, 0.6))]
    return [await one for one in asyncio.as_completed(tasks)]


@flow("wait-for-times-out")
async def wait_for_times_out(ctx: Any) -> str:
    """Temporal: test_workflow_wait_condition_timeout."""
    try:
        await asyncio.wait_for(ctx.sleep(60), 0.1)
    except TimeoutError:
        return "timed out"
    return "slept"


@flow("timeout-block")
async def timeout_block(ctx: Any) -> list[str]:
    try:
        async with asyncio.timeout(0.1):
            await ctx.await_event("never", key=ctx.run.run_id)
    except TimeoutError:
        return ["timed out", await ctx.step(str, "afterwards")]
    return []


@flow("lock")
async def lock(ctx: Any, input: str) -> None:
    """Temporal: test_workflow_coroutines_can_use_lock."""
    gate = asyncio.Lock()

    async def lane(name: str) -> None:
        async with gate:
            await ctx.step(note, input, f"{name}-in")
            await ctx.sleep(0.02)
            await ctx.step(note, input, f"{name}-out")

    await asyncio.gather(*[lane(name) for name in "abc"])


@flow("lock-with-timeout")
async def lock_with_timeout(ctx: Any) -> list[str]:
    """Temporal: test_workflow_coroutines_lock_acquisition_respects_timeout."""
    gate = asyncio.Lock()

    async def holder() -> str:
        async with gate:
            await ctx.sleep(3)
        return "held"

    async def waiter() -> str:
        await ctx.sleep(0.01)
        try:
            await asyncio.wait_for(gate.acquire(), 0.05)
        except TimeoutError:
            return "gave up"
        return "got it"

    return await asyncio.gather(holder(), waiter())


@flow("semaphore")
async def semaphore(ctx: Any, input: int) -> int:
    """Temporal: test_workflow_coroutines_can_use_semaphore. How many lanes were inside at most."""
    gate, inside, most = asyncio.Semaphore(2), 0, 0

    async def lane() -> None:
        nonlocal inside, most
        async with gate:
            inside, most = inside + 1, max(most, inside + 1)
            await ctx.sleep(0.02)
            inside -= 1

    await asyncio.gather(*[lane() for _ in range(input)])
    return most


@flow("queue")
async def queue(ctx: Any) -> list[int]:
    items: asyncio.Queue[int | None] = asyncio.Queue(maxsize=2)

    async def produce() -> None:
        for n in range(5):
            await items.put(await ctx.step(double, n))
        await items.put(None)

    async def consume() -> list[int]:
        out: list[int] = []
        while (one := await items.get()) is not None:
            await ctx.sleep(0.01)
            out.append(one)
        return out

    return (await asyncio.gather(produce(), consume()))[1]


@flow("order-of-sleeps")
async def order_of_sleeps(ctx: Any) -> list[int]:
    """Temporal: test_concurrent_sleeps_use_proper_options."""
    order: list[int] = []

    async def lane(number: int, seconds: float) -> None:
        await ctx.sleep(seconds)
        order.append(number)

    await asyncio.gather(lane(3, 0.9), lane(1, 0.1), lane(2, 0.5))
    return order


@flow("order-of-lanes")
async def order_of_lanes(ctx: Any) -> list[str]:
    """Temporal: test_async_loop_ordering. What lanes do between checkpoints has one order."""
    order: list[str] = []

    async def lane(name: str) -> None:
        for part in range(3):
            order.append(f"{name}{part}")
            await asyncio.sleep(0)

    await asyncio.gather(lane("a"), lane("b"), lane("c"))
    await ctx.sleep(0.02)
    return order


@flow("cancel-a-sleeping-lane")
async def cancel_a_sleeping_lane(ctx: Any) -> list[str]:
    """Temporal: test_workflow_sleep_task_cancellation."""
    sleeper = asyncio.create_task(_value(ctx.sleep(60)))
    await ctx.sleep(0.02)
    sleeper.cancel()
    try:
        await sleeper
    except asyncio.CancelledError:
        return ["cancelled", await ctx.step(str, "and on")]
    return []


@flow("shield")
async def shield(ctx: Any) -> list[Any]:
    """Temporal: test_workflow_uncancel_shield_activity."""
    inner = asyncio.ensure_future(_value(ctx.call("sleeps-then-doubles", {"seconds": 0.3, "number": 21})))
    try:
        await asyncio.wait_for(asyncio.shield(inner), 0.05)
    except TimeoutError:
        return ["impatient", await inner]
    return []


@flow("task-group")
async def task_group(ctx: Any) -> list[str]:
    seen: list[str] = []

    async def sleeper() -> None:
        try:
            await ctx.sleep(60)
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise

    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(sleeper())
            group.create_task(_value(ctx.step(fail, "one of the group")))
    except* Exception as errors:
        seen.append(type(errors.exceptions[0]).__name__)
    return seen


@flow("lanes-of-steps-and-sleeps")
async def lanes_of_steps_and_sleeps(ctx: Any, input: str) -> list[list[str]]:
    async def lane(name: str, seconds: float) -> list[str]:
        first = await ctx.step(note, input, f"{name}1")
        await ctx.sleep(seconds)
        return [first, await ctx.step(note, input, f"{name}2")]

    return await asyncio.gather(*[lane(f"lane{n}-", 0.05 * (4 - n)) for n in range(4)])


@flow("first-of-children")
def first_of_children(ctx: Any) -> int:
    """DBOS: test_wait_first."""
    inputs = [{"seconds": 60, "number": 1}, {"seconds": 0.01, "number": 2}]
    return int(ctx.first(*[(ctx.call, "sleeps-then-doubles", one) for one in inputs], cancel_others=True).result())


@flow("sleep-or-event")
def sleep_or_event(ctx: Any, input: float) -> Any:
    """Hatchet: a group of a sleep or an event."""
    timer = ctx.start.sleep(input)
    event = ctx.start.await_event("go", key=ctx.run.run_id)
    won = ctx.first(timer, event, cancel_others=True)
    return "sleep" if won.handle == timer else ["event", won.result()]


@flow("spawned-result-later")
def spawned_result_later(ctx: Any) -> list[Any]:
    """DBOS: test_retrieve_workflow_in_workflow."""
    child = ctx.spawn("doubled", 4)
    ctx.sleep(0.05)
    return [child.run_id, child.result()]


@flow("async-spawned-result-later")
async def async_spawned_result_later(ctx: Any) -> list[Any]:
    children = [await ctx.spawn("doubled", n) for n in range(3)]
    await ctx.sleep(0.05)
    return [await child for child in reversed(children)]


async def _value(awaitable: Awaitable[Any]) -> Any:
    return await awaitable
