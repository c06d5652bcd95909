"""The workflows of the load, as a workflow file that the workers import. Each result follows from the input alone, and
every step writes to the ledger before it works.
"""

from __future__ import annotations

import asyncio
import random
import time
import uuid
from typing import Any

from rival_workers import (
    StepError,
    StepFailed,
    create_workflow,
    delay_step,
    flow,
    for_each,
    loop,
    parallel,
    step,
    wait_event_step,
    workflow,
)
from tests.chaos.storm import ledger

#: A timeout that is shorter than the sleep of a first attempt, and long enough for a loaded machine.
TIMEOUT, TOO_LONG = 2.0, 3.0
#: Faults may time out any attempt: no number of timeouts may fail a step.
ALWAYS = 1000


#: Seconds that an execution takes, mostly and sometimes: faults must find some of them running.
BRIEFLY, LONG = 0.03, 1.0


def effect(run: Any, path: str | None = None) -> str:
    """The side effect of a step, which takes a while."""
    nonce = recorded(run, path)
    time.sleep(duration())
    return nonce


def duration() -> float:
    return LONG if random.random() < 0.03 else BRIEFLY


def recorded(run: Any, path: str | None = None) -> str:
    """`path` only within a flow, where the run names the flow."""
    nonce = uuid.uuid4().hex[:12]
    ledger.record(run.id, path or run.step, run.step, run.attempt, nonce)
    return nonce


def worked(run: Any, input: Any) -> str:
    nonce = effect(run)
    time.sleep(input.get("seconds", 0.0))
    return nonce


# -- plain: a chain with retries, timeouts, a skip and an async step ----------------------------------------


def first(run: Any, input: Any) -> dict[str, Any]:
    return {"value": input["n"] + 1, "saw": None, "nonce": worked(run, input)}


def follow(run: Any, input: Any, last_step: Any) -> dict[str, Any]:
    before = last_step.result
    return {"value": before["value"] * 2, "saw": before["nonce"], "nonce": worked(run, input)}


def flaky(run: Any, input: Any, last_step: Any) -> dict[str, Any]:
    if run.attempt <= input["fails"]:
        effect(run)
        raise StepError("not yet", behavior="retry")
    return follow(run, input, last_step)


def slow_at_first(run: Any, input: Any, last_step: Any) -> dict[str, Any]:
    done = follow(run, input, last_step)
    if run.attempt == 1 and input["slow"]:
        time.sleep(TOO_LONG)
    return done


async def awaited(run: Any, input: Any, last_step: Any) -> dict[str, Any]:
    nonce = recorded(run)
    await asyncio.sleep(duration())
    return {"value": last_step.result["value"] + 5, "saw": last_step.result["nonce"], "nonce": nonce}


def left_out(run: Any, state: Any) -> None:
    effect(run)
    state.skipped = True


def last(run: Any, input: Any, steps: Any) -> dict[str, Any]:
    before = steps.awaited.result
    return {"value": before["value"] + 3, "saw": before["nonce"], "nonce": worked(run, input)}


(
    create_workflow("plain")
    .step(first)
    .step(flaky, max_attempts=3, base_delay=0.1)
    .step(slow_at_first, timeout=TIMEOUT, on_timeout="retry", max_attempts=ALWAYS, base_delay=0.1, max_delay=0.5)
    .step(awaited)
    .step(left_out)
    .step(last)
    .register()
)

# -- fan: joins within joins --------------------------------------------------------------------------------


def numbers(input: Any) -> list[int]:
    return list(range(input["n"]))


def few(input: Any) -> list[int]:
    return list(range(input["n"] % 4))


def square(run: Any, item: int) -> int:
    effect(run)
    return item * item


def but_not_each_third(run: Any, item: int) -> int:
    effect(run)
    if item % 3 == 2:
        raise ValueError(f"item {item}")
    return item


def one(run: Any) -> int:
    effect(run)
    return 1


def two(run: Any) -> int:
    effect(run)
    return 2


def turn(run: Any, index: int) -> int:
    effect(run)
    return index


def third_turn(index: int) -> bool:
    return index == 2


def total(run: Any, steps: Any) -> dict[str, Any]:
    effect(run)
    return {
        "squares": sum(steps.squares.result),
        "others": steps.others.result,
        "ways": steps.ways.result,
        "turns": steps.turns.result,
        "inner": steps.inner.result,
    }


inner = create_workflow("inner").parallel("pair", [one, two]).step(two, name="after").build()
(
    create_workflow("fan")
    .for_each("squares", items=numbers, do=[square, step(square, name="again")], concurrency=5)
    .for_each("others", items=few, do=[but_not_each_third], concurrency=3, on_failure="continue")
    .parallel("ways", [one, [two, for_each("deep", items=few, do=[square, parallel("pair", [one, two])])]])
    .step(loop("turns", do=[turn], until=third_turn, max_iterations=5))
    .step(workflow(inner, name="inner"))
    .step(total)
    .register()
)

create_workflow("tick").step(one).register()

# -- saga: everything is done, then undone ------------------------------------------------------------------


def act(run: Any) -> str:
    effect(run)
    return str(run.step)


def undo(run: Any, result: str) -> str:
    effect(run)
    return f"undone {result}"


def undo_at_last(run: Any, result: str) -> str:
    effect(run)
    if run.attempt == 1:
        raise StepError("not yet", behavior="retry")
    return f"undone {result}"


def fails(run: Any) -> None:
    effect(run)
    raise ValueError("the saga fails")


def report(run: Any) -> None:
    effect(run)


(
    create_workflow("saga")
    .step(act, name="reserve", compensate=undo)
    .step(act, name="charge", compensate=undo_at_last, max_attempts=3, base_delay=0.1)
    .for_each("parcels", items=few, do=[step(act, name="pack", compensate=undo)], concurrency=2)
    .parallel("papers", [step(act, name="bill", compensate=undo), step(act, name="label", compensate=undo)])
    .step(fails, name="ship")
    .on_error(report)
    .register()
)

# -- order: delays, events, and a vendor who completes a step from outside ----------------------------------


def key(run: Any) -> str:
    return str(run.id)


def ask_vendor(ctx: Any, run: Any, steps: Any) -> None:
    effect(run)
    ledger.mail(ctx.completion_token, {"price": steps.paid.result["amount"] * 3})


def shipped(run: Any, steps: Any) -> dict[str, Any]:
    effect(run)
    return {"paid": steps.paid.result["amount"], "price": steps.ask_vendor.result["price"]}


(
    create_workflow("order")
    .step(one)
    .step(delay_step(seconds=0.3))
    .step(wait_event_step("paid", key=key, name="paid"))
    .step(ask_vendor, execution_mode="external")
    .step(shipped)
    .register()
)

# -- journey: a flow with retries, sleeps, an event, children and a failure that it catches -------------------


def child_step(run: Any, input: Any) -> int:
    effect(run)
    return int(input["n"]) + 1


def child_end(run: Any, last_step: Any) -> int:
    effect(run)
    return int(last_step.result) * 10


create_workflow("child").step(child_step).step(child_end).register()


class Checkpoint:
    """A step of a flow: its effect is written under the path of the checkpoint."""

    def __init__(self, run: Any) -> None:
        self._run = run

    def _effect(self, name: str) -> None:
        effect(self._run, f"{self._run.step}/{name}")

    def add(self, name: str, n: int) -> int:
        self._effect(name)
        return n + 1

    def fail_once(self, name: str, n: int) -> int:
        self._effect(name)
        if ledger.first_time(f"{self._run.id}:{name}".replace("/", "_")):
            raise StepError("not yet", behavior="retry")
        return n + 1

    def never(self, name: str) -> None:
        self._effect(name)
        raise ValueError("never")


@flow("journey")
def journey(ctx: Any, input: Any) -> dict[str, Any]:
    do = Checkpoint(ctx.run)
    began = ctx.step(do.add, "a", input["n"], name="a")
    ctx.sleep(0.2)
    again = ctx.step(do.fail_once, "b", began, name="b", max_attempts=3, base_delay=0.1)
    amount = ctx.await_event("paid", key=ctx.run.id)["amount"]
    called = ctx.call("child", {"n": amount})
    spawned = ctx.spawn("child", {"n": again})
    gathered = ctx.gather((do.add, "g0", 0), (ctx.sleep, 0.1), (do.add, "g1", 10), (ctx.call, "child", {"n": 3}))
    winner = ctx.first((ctx.sleep, 600), (do.add, "f", 0), cancel_others=True).index
    try:
        ctx.step(do.never, "c", name="c")
        caught = False
    except StepFailed:
        caught = True
    end = ctx.step(do.add, "end", called, name="end")
    return {
        "again": again,
        "called": called,
        "spawned": spawned,
        "gathered": gathered,
        "winner": winner,
        "caught": caught,
        "end": end,
    }


# -- lanes: an async flow whose tasks wait for timers, events, children and retries at the same time ---------


@flow("lanes")
async def lanes(ctx: Any, input: Any) -> dict[str, Any]:
    do = Checkpoint(ctx.run)

    async def lane(number: int) -> int:
        began = await ctx.step(do.add, f"a{number}", number, name=f"a{number}")
        await ctx.sleep(0.05 * (number % 3))
        return int(await ctx.step(do.fail_once, f"b{number}", began, name=f"b{number}", max_attempts=3, base_delay=0.1))

    async def paid() -> int:
        return int((await ctx.await_event("paid", key=ctx.run.id))["amount"])

    calls = [ctx.call("child", {"n": number}) for number in range(2)]
    gathered = await asyncio.gather(*(lane(number) for number in range(input["n"] % 5)), paid(), *calls)
    try:
        await asyncio.wait_for(ctx.sleep(600), 0.1)
        in_time = True
    except TimeoutError:
        in_time = False
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(lane(number)) for number in (7, 8)]
    end = await ctx.step(do.add, "end", sum(gathered), name="end")
    return {"gathered": gathered, "in_time": in_time, "tasks": [task.result() for task in tasks], "end": end}
