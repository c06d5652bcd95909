"""Workflows of the scenarios about failures, events, children and operators. Loaded by workers and by library mode."""

from __future__ import annotations

import asyncio
import sys
import time
import uuid
from typing import Any, Literal

from pydantic import BaseModel

from rival_workers import ChildFailed, StepError, StepFailed, create_workflow, flow, step
from tests.scenarios.effects import note, notes


class Order(BaseModel):
    number: int
    lines: list[str] = []
    kind: Literal["new", "old"] = "new"


class Receipt(BaseModel):
    number: int
    total: float


def receipt(input: Order) -> Receipt:
    return Receipt(number=input.number, total=1.5 * len(input.lines))


create_workflow("typed").input(Order).step(receipt).register()
create_workflow("returns-nothing").step(lambda: None, name="nothing").register()
create_workflow("returns-a-set").step(lambda: {1, 2}, name="bad").register()


def flaky(input: dict[str, Any], run: Any) -> int:
    note(input["file"], f"try{run.attempt}")
    if run.attempt < input["good"]:
        raise StepError("not yet", behavior="retry")
    return int(run.attempt)


create_workflow("flaky").step(flaky, max_attempts=3, backoff="none").register()


class OddError(Exception):
    """Pickle and many serialisers fail on an exception like this one."""

    def __init__(self, code: int, *, reason: str) -> None:
        super().__init__(f"{reason} ({code})")


def odd() -> None:
    raise OddError(7, reason="odd")


def interrupted() -> None:
    raise KeyboardInterrupt


async def exits() -> None:
    sys.exit(3)


create_workflow("odd-error").step(odd).register()
create_workflow("interrupted").step(interrupted).register()
create_workflow("exits").step(exits).register()


async def plain_async() -> str:
    await asyncio.sleep(0.01)
    return "fine"


create_workflow("plain-async").step(plain_async).register()


def too_slow(input: str, run: Any) -> str:
    note(input, f"begun{run.attempt}")
    if run.attempt == 1:
        time.sleep(0.8)
        return "late"
    return "in time"


create_workflow("too-slow").step(too_slow, timeout=0.2, on_timeout="retry", max_attempts=2, backoff="none").register()


def cleaned(input: str, error: Any) -> None:
    note(input, f"handler-saw-{error['type']}")


create_workflow("handled").step(odd, on_error=cleaned).register()
create_workflow("noted").step(lambda input: note(input, "ran"), name="note").register()


def fails_first(input: str) -> str:
    if "failed" not in notes(input):
        note(input, "failed")
        raise ValueError("the first time")
    return note(input, "worked")


create_workflow("three-steps").step(lambda input: note(input, "one"), name="one").step(fails_first).step(
    lambda input: note(input, "three"), name="three"
).register()


def numbers(input: int) -> list[int]:
    return list(range(input))


create_workflow("mapped").for_each(
    "square", items=numbers, do=[step(lambda item: item * item, name="squared")], concurrency=10
).register()


@flow("retried-flow")
def retried_flow(ctx: Any, input: str) -> list[str]:
    """Prefect: a flow that is tried again does not repeat what has completed."""
    first = ctx.step(note, input, "first")
    return [first, ctx.step(fails_first, input)]


@flow("catches-a-step")
def catches_a_step(ctx: Any) -> str:
    try:
        ctx.step(odd)
    except StepFailed as failed:
        ctx.sleep(0.01)
        return f"{failed.error['type']}"
    return "nothing"


@flow("catches-a-child")
def catches_a_child(ctx: Any) -> str:
    try:
        ctx.call("odd-error")
    except ChildFailed as failed:
        ctx.sleep(0.01)
        return f"{failed.error['type']}"
    return "nothing"


@flow("fails-with-its-child")
def fails_with_its_child(ctx: Any) -> None:
    ctx.call("odd-error")


@flow("factorial")
def factorial(ctx: Any, input: int) -> int:
    return 1 if input < 2 else input * int(ctx.call("factorial", input - 1))


@flow("changes-its-mind")
def changes_its_mind(ctx: Any) -> str:
    """DBOS: test_nondeterministic_workflow."""
    ctx.step(str, "x", name=f"visit-{uuid.uuid4().hex}")
    ctx.sleep(0.01)
    return "done"


@flow("swallows")
def swallows(ctx: Any, input: str) -> str:
    """Temporal: test_workflow_eviction_swallow."""
    try:
        ctx.step(note, input, "acquire")
        ctx.sleep(0.05)
        ctx.step(note, input, "work")
    except BaseException:
        ctx.step(note, input, "swallowed")
    finally:
        ctx.step(note, input, "release")
    return "done"


@flow("async-swallows")
async def async_swallows(ctx: Any, input: str) -> str:
    """Temporal: test_cache_eviction_tear_down."""
    try:
        await ctx.step(note, input, "acquire")
        await ctx.sleep(0.05)
        await ctx.step(note, input, "work")
    except BaseException:
        await ctx.step(note, input, "swallowed")
    finally:
        await ctx.step(note, input, "release")
    return "done"


@flow("same-on-replay")
def same_on_replay(ctx: Any, input: str) -> None:
    """Temporal: test_workflow_uuid, test_random_seed_functionality."""
    note(input, f"{ctx.uuid()}/{ctx.random.random()}/{ctx.now().isoformat()}")
    ctx.sleep(0.05)


@flow("keys-in-order")
def keys_in_order(ctx: Any) -> list[Any]:
    """Hatchet: payload bug on replay."""
    found = ctx.step(lambda: {"zulu": 1, "alpha": 1e300, "m": [{"b": 1.0, "a": -0.0}]}, name="make")
    seen = [ctx.step(str, key, name=key) for key in found]
    ctx.sleep(0.05)
    return [seen, found]


@flow("counts-down")
def counts_down(ctx: Any, input: int) -> str:
    """Temporal: test_workflow_continue_as_new."""
    ctx.step(str, input)
    return "done" if input == 0 else ctx.continue_as(input - 1)


@flow("reads-signals")
def reads_signals(ctx: Any) -> list[str]:
    """Temporal: test_workflow_signal_and_query. Two kinds of signals in one loop."""
    seen: list[str] = []
    while True:
        event = ctx.await_event(["zebra", "add"], key=ctx.run.run_id)
        if event.payload == "stop":
            return seen
        seen.append(f"{event.topic}:{event.payload}")


@flow("two-events")
def two_events(ctx: Any) -> list[Any]:
    """Hatchet: the second event is pushed first."""
    return [ctx.await_event("one", key=ctx.run.run_id), ctx.await_event("two", key=ctx.run.run_id)]


@flow("event-times-out")
def event_times_out(ctx: Any) -> Any:
    return ctx.await_event("never", key=ctx.run.run_id, timeout=0.05)


@flow("parent-of-a-sleeper")
def parent_of_a_sleeper(ctx: Any) -> None:
    """DBOS: test_cancel_workflow_children."""
    ctx.call("sleeps-long")


@flow("sleeps-long")
def sleeps_long(ctx: Any) -> None:
    ctx.sleep(hours=1)


@flow("many-checkpoints")
def many_checkpoints(ctx: Any, input: int) -> int:
    total = sum(ctx.step(int, n) for n in range(input))
    ctx.sleep(0.01)
    return total


@flow("paused-between")
def paused_between(ctx: Any, input: str) -> None:
    for n in range(50):
        ctx.step(note, input, f"part{n}")
        ctx.sleep(0.02)
