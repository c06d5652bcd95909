"""The workflows that Rival's workers carry out in the benchmarks; the peers have the same ones in their own words."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from pydantic import BaseModel

from benchmarks import payloads
from benchmarks.marks import mark, seen
from rival_workers import StepError, create_workflow, flow

SLOW_S = 60.0


class Input(BaseModel):
    """What all of them take."""

    key: str


def nothing() -> None:
    """A no-op."""


def with_context(input: Input, steps: Any, log: Any) -> dict[str, str]:
    """Asks for a context, and returns 200 bytes."""
    return {"key": input.key, "text": "x" * 180}


def ten_kb() -> str:
    """Returns 10 KB."""
    return payloads.text(10_000)


def hundred_kb() -> str:
    """Returns 100 KB."""
    return payloads.text(100_000)


def wait_50_ms() -> None:
    """As a call of another service does."""
    time.sleep(0.05)


def compute_5_ms() -> None:
    """Uses the processor."""
    until = time.thread_time() + 0.005
    while time.thread_time() < until:
        pass


def register(kind: str, function: Callable[..., object], steps: int) -> None:
    """The workflow `<kind>-<steps>`."""
    builder = create_workflow(f"{kind}-{steps}").input(Input)
    for number in range(1, steps + 1):
        builder = builder.step(function, name=f"step_{number}")
    builder.register()


def leave_pid(input: Input) -> None:
    """Long enough that one process cannot do all of them."""
    mark("pids", input.key)
    time.sleep(0.05)


def fail_once(input: Input) -> None:
    """Fails the first time."""
    if seen("flaky failed", input.key):
        mark("flaky again", input.key)
        return
    mark("flaky failed", input.key)
    raise StepError("once", behavior="retry")


def sleep_once(input: Input) -> None:
    """Takes long the first time, so that its worker can be killed in the middle."""
    again = seen("slow", input.key)
    mark("slow", input.key)
    if not again:
        time.sleep(SLOW_S)


def take_a_second() -> None:
    """The slow step of a mixed load."""
    time.sleep(1.0)


class Many(Input):
    """How many items."""

    count: int


def items(input: Many) -> range:
    """The items of a fan-out."""
    return range(input.count)


for length in (1, 5, 10, 1000):
    register("noop", nothing, length)
for kind, function in (
    ("context", with_context),
    ("kb10", ten_kb),
    ("kb100", hundred_kb),
    ("wait50", wait_50_ms),
    ("cpu5", compute_5_ms),
):
    register(kind, function, 5)
mixed = create_workflow("mixed-5").input(Input).step(nothing, name="a").step(wait_50_ms, name="b")
mixed.step(nothing, name="c").step(compute_5_ms, name="d").step(nothing, name="e").register()
create_workflow("items").input(Many).for_each("all", items=items, do=[nothing], concurrency=32).register()
create_workflow("waits").input(Input).wait_event("wait", "go", key=lambda run: run.run_id).register()
create_workflow("sleeps").input(Input).delay("sleep", days=365).register()
create_workflow("pids").input(Input).step(leave_pid).register()
create_workflow("flaky").input(Input).step(fail_once, max_attempts=2, backoff="linear", base_delay=1.0).register()
create_workflow("slow").input(Input).step(sleep_once).register()
create_workflow("second").input(Input).step(take_a_second).register()


class Turns(BaseModel):
    """How often a flow continues."""

    left: int


@flow("turns", input=Turns)
def turns(ctx: Any, input: Turns) -> None:
    """One checkpoint, and again."""
    ctx.step(nothing)
    if input.left > 0:
        ctx.continue_as({"left": input.left - 1})


class Nap(BaseModel):
    """How long a flow sleeps."""

    seconds: float


@flow("nap", input=Nap)
def nap(ctx: Any, input: Nap) -> None:
    """Wakes up, and is measured by when that was."""
    ctx.sleep(input.seconds)


@flow("flow-waits", input=Input)
def flow_waits(ctx: Any, input: Input) -> Any:
    """Waits for an event, and returns its payload."""
    return ctx.await_event("go", key=ctx.run.id)


class Checkpoints(BaseModel):
    """How much a flow does."""

    count: int


@flow("checkpoints", input=Checkpoints)
def checkpoints(ctx: Any, input: Checkpoints) -> None:
    """One step after the other."""
    for _ in range(input.count):
        ctx.step(nothing)
