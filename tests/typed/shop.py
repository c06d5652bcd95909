"""A program as a user with strict type checkers writes it: plans, flows, children, events and clients. It also runs."""

from __future__ import annotations

import asyncio
import datetime as dt
from typing import ClassVar, assert_type

from pydantic import BaseModel

from rival_client import AsyncRival, Rival, RunResult, RunStatus, StepStatus
from rival_workers import (
    AsyncFlowContext,
    Context,
    FlowContext,
    PolicyRule,
    Received,
    Results,
    RunInfo,
    StepError,
    StepLog,
    StepOf,
    Steps,
    StepState,
    StepView,
    branch,
    create_workflow,
    default,
    delay_step,
    flow,
    for_each,
    http_step,
    loop,
    named,
    parallel,
    shell_step,
    step,
    wait_event_step,
    workflow,
)


class Order(BaseModel):
    order_id: str
    amount: int


class Receipt(BaseModel):
    order_id: str
    total: int


class Label(BaseModel):
    text: str


class Approved(BaseModel):
    topic: ClassVar[str] = "shop.approved"
    by: str


# -- a plan -----------------------------------------------------------------------------------------------


class OrderResults(Results):
    reserve: StepOf[Receipt]
    label: StepOf[Label]


def reserve(input: Order, log: StepLog, run: RunInfo) -> Receipt:
    log.info("reserving", attempt=run.attempt)
    return Receipt(order_id=input.order_id, total=input.amount)


@step(timeout=dt.timedelta(minutes=1), max_attempts=3, backoff="exponential")
async def label(steps: OrderResults, state: StepState) -> Label:
    state.description = steps.reserve.result.order_id
    if steps.reserve.result.total < 0:
        raise StepError("a negative amount", behavior="stop")
    return Label(text=steps.reserve.result.order_id.upper())


def summary(ctx: Context, steps: OrderResults, last_step: StepView[Label]) -> str:
    status: StepStatus = steps.reserve.status
    return f"{ctx.run.workflow} {last_step.result.text} {status}"


def untyped(steps: Steps, last_step: StepView) -> str:
    found = steps["label"].status if "label" in steps else "none"
    return str(steps.label.result.text) + str(last_step.result) + found


def is_large(input: Order) -> bool:
    return input.amount > 100


def lines(input: Order) -> list[int]:
    return list(range(input.amount))


def pack(item: int) -> int:
    return item * 2


def undo(result: Receipt) -> None:
    del result


rules: list[PolicyRule] = [
    (named("la.*"), {"timeout": 60, "max_attempts": 2}),
    ("summary", {"max_retries": 1, "base_delay": 0}),
    (default, {"timeout": dt.timedelta(minutes=5)}),
]

orders = (
    create_workflow("orders")
    .input(Order)
    .step(reserve, compensate=undo, heartbeat=30)
    .step(label)
    .step(summary, max_retries=2)
    .step(untyped)
    .results(OrderResults)
    .policies(*rules)
    .register()
)

everything = (
    create_workflow("everything")
    .input(Order)
    .step(step(reserve, timeout=5, on_timeout="retry", max_attempts=2, name="first"))
    .branch("large?", when=is_large, then=[pack], otherwise=[delay_step(minutes=1)], timeout=3)
    .for_each("each", items=lines, do=pack, concurrency=4, max_attempts=2)
    .steps([loop("again", do=[reserve], max_iterations=2), parallel("both", [label, summary], on_failure="wait")])
    .steps([branch("or", when=is_large, then=[pack]), for_each("every", items=lines, do=pack), workflow(orders)])
    .steps([http_step("https://example.org/{input.order_id}", max_attempts=5), shell_step(["true"], timeout=3)])
    .steps([wait_event_step(Approved, timeout=60, on_timeout="continue")])
    .wait_event("paid", "shop.paid", key="k", timeout=dt.timedelta(days=1), max_attempts=2)
    .delay("pause", hours=2)
)

# -- flows ------------------------------------------------------------------------------------------------


def charge(order_id: str, amount: int, *, currency: str = "EUR") -> Receipt:
    return Receipt(order_id=f"{order_id}/{currency}", total=amount)


async def fetch(order_id: str) -> Label:
    return Label(text=order_id)


def double(number: int = 1) -> int:
    return number * 2


patient_charge = step(charge, max_attempts=3, base_delay=0, timeout=dt.timedelta(seconds=30))


@flow("quote")
def quote(ctx: FlowContext, input: int) -> Receipt:
    ctx.sleep(milliseconds=1)
    return ctx.step(charge, "quoted", input)


@flow("stock", policies=rules)
async def stock(ctx: AsyncFlowContext, input: int) -> int:
    await ctx.sleep(0)
    return await ctx.step(double, input)


@flow("purchase", input=Order, retention=3600)
def purchase(ctx: FlowContext, input: Order) -> dict[str, str | int]:
    receipt = assert_type(ctx.step(charge, input.order_id, amount=input.amount), Receipt)
    again = assert_type(ctx.step(charge, input.order_id, 7, max_attempts=2, name="again"), Receipt)
    dollars = assert_type(ctx.step(patient_charge, input.order_id, 8, currency="USD"), Receipt)
    fetched = assert_type(ctx.step(fetch, receipt.order_id), Label)
    ctx.sleep(milliseconds=1)
    ctx.sleep_until(assert_type(ctx.now(), dt.datetime))

    handle = ctx.start.step(double, 4)
    quoted, doubled = ctx.gather(ctx.start.call(quote, 5), handle)
    assert_type(quoted, Receipt)
    assert_type(doubled, int)
    assert_type(ctx.gather(*[ctx.start.step(double, number) for number in range(3)]), list[int])
    assert_type(ctx.first(ctx.start.step(double, 2), ctx.start.step(fetch, "x")).result(), int | Label)

    child = ctx.spawn(stock, 3)
    in_stock = assert_type(child.result(), int) + assert_type(ctx.call(stock, 4), int)
    approval = assert_type(ctx.await_event(Approved, key=input.order_id), Approved)
    late = assert_type(ctx.await_event(Approved, timeout=0), Approved | None)
    several = assert_type(ctx.await_event([Approved, "shop.refused"], timeout=0), Received | None)
    assert late is None
    assert several is None
    return {
        "receipt": f"{receipt.order_id} {again.total} {dollars.order_id} {fetched.text}",
        "quoted": quoted.total + doubled,
        "in stock": in_stock,
        "by": approval.by,
    }


@flow("delivery")
async def delivery(ctx: AsyncFlowContext) -> list[int]:
    receipt = assert_type(await ctx.step(charge, "d", 1, currency="USD"), Receipt)
    one, two = await ctx.gather(ctx.step(fetch, receipt.order_id), ctx.step(double, max_attempts=2))
    assert_type(one, Label)
    async with asyncio.TaskGroup() as group:
        three = group.create_task(ctx.step(double, 3))
        group.create_task(ctx.sleep(milliseconds=1))
    four, five = await asyncio.gather(ctx.step(double, 4), ctx.call(stock, 5))
    first = assert_type((await ctx.first(ctx.start.step(double, 6), ctx.step(double, 6))).result(), int)
    quoted = assert_type(await ctx.call(quote, 7), Receipt)
    spawned = assert_type(await (await ctx.spawn(stock, 8)), int)
    late = assert_type(await ctx.await_event(Approved, timeout=0), Approved | None)
    assert late is None
    return [two, assert_type(three.result(), int), four, five, first, quoted.total, spawned]


# -- clients ----------------------------------------------------------------------------------------------


def buy(rival: Rival) -> RunResult:
    started = rival.run(purchase, Order(order_id="o-1", amount=5), "o-1")
    rival.send_event(Approved(by="Ann"), key="o-1")
    ended = rival.wait(run_id=started.run_id, timeout=60)
    status: RunStatus = rival.state("o-1").status
    assert status == ended.status
    assert [run.run_id for run in rival.runs(status=["completed", "failed"], workflow="purchase")] == ["o-1"]
    return ended


async def look(rival: AsyncRival) -> list[str]:
    started = await rival.run("delivery")
    await started.wait(60)
    return [run.run_id for run in await rival.runs(status="completed", workflow="delivery")]
