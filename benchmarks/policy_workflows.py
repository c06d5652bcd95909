"""The workflows with limits, rates and rules. A file of its own: an earlier commit that has no limits can be measured
with the other workflows."""

from __future__ import annotations

import time

from benchmarks.marks import mark, seen
from benchmarks.rival_workflows import Input, nothing
from rival_workers import create_workflow, limit, rate, step

STEPS = 5
SLOW_S = 60.0


class Tenant(Input):
    """Whose run it is."""

    tenant: str = ""


def busy() -> None:
    """Uses its slot for a while."""
    time.sleep(0.1)


def short() -> None:
    """Keeps all processes at work without filling the queue."""
    time.sleep(0.01)


def leave_mark(input: Input) -> None:
    """Shows where and when it ran."""
    mark("slot", input.key)


def hold_slot(input: Input) -> None:
    """Uses its slot until its worker is killed."""
    if not seen("holds", input.key):
        mark("holds", input.key)
        time.sleep(SLOW_S)


def hold_until_released(input: Input) -> None:
    """Uses its slot until enough others wait for it."""
    mark("holding", input.key)
    end = time.monotonic() + SLOW_S
    while not seen("go", input.key) and time.monotonic() < end:
        time.sleep(0.02)


def register_limited() -> None:
    """Every step has a limit: one for all of them, one of its own, or one that is never reached."""
    kinds = {
        "keyed": [limit("keyed", 5, key="input.key")] * STEPS,
        "keyed_each": [limit(f"keyed{number}", 5, key="input.key") for number in range(STEPS)],
        "wide": [limit("wide", 500)] * STEPS,
        "wide_each": [limit(f"wide{number}", 500) for number in range(STEPS)],
    }
    for kind, limits in kinds.items():
        builder = create_workflow(f"{kind}-{STEPS}").input(Input)
        for number, one in enumerate(limits, 1):
            builder = builder.step(step(nothing, name=f"step_{number}", concurrency_limit=one))
        builder.register()


def register_timed() -> None:
    """Steps with a timeout, which a rule changes."""
    builder = create_workflow(f"timed-{STEPS}").input(Input)
    for number in range(1, STEPS + 1):
        builder = builder.step(step(nothing, name=f"step_{number}", timeout=60))
    builder.register()


register_limited()
register_timed()
create_workflow("hot").input(Input).step(step(nothing, name="work", concurrency_limit=limit("hot", 5))).register()
create_workflow("hot_holds").input(Input).step(
    step(hold_until_released, name="hold", concurrency_limit=limit("hot", 5))
).register()
create_workflow("paced").input(Input).step(step(nothing, name="work", rate_limit=rate(50, per=1))).register()
create_workflow("fair").input(Tenant).step(
    step(busy, name="work", concurrency_limit=limit("fair", 4, fair="input.tenant"))
).register()
create_workflow("holds").input(Input).step(step(hold_slot, name="work", concurrency_limit=limit("slot", 1))).register()
create_workflow("takes").input(Input).step(step(leave_mark, name="work", concurrency_limit=limit("slot", 1))).register()
create_workflow("fives").input(Input).step(
    step(busy, name="work", concurrency_limit=limit("five", 5, key="input.key"))
).register()
create_workflow("gathered").input(list).step(step(nothing, name="work")).register()
create_workflow("much").input(Input).step(step(busy, name="work")).register()
create_workflow("little").input(Input).step(step(leave_mark, name="work")).register()
create_workflow("ruled").input(Input).step(step(short, name="work")).register()
