"""Each marked line has one mistake. Behind the mark: what a strict mypy and a strict pyright call it."""

from __future__ import annotations

import rival_client
import rival_workers
from rival_client import AsyncRival, Rival, RunFilter
from rival_workers import (
    AsyncFlowContext,
    Context,
    FlowContext,
    StepLog,
    branch,
    breaker,
    create_workflow,
    delay_step,
    flow,
    http_step,
    step,
    wait_event_step,
)
from tests.typed.shop import (
    Approved,
    OrderResults,
    charge,
    double,
    fetch,
    is_large,
    label,
    pack,
    patient_charge,
    quote,
    reserve,
)


def in_names() -> None:
    rival_client.RunStates  # wrong: attr-defined, reportAttributeAccessIssue
    rival_workers.steps  # wrong: attr-defined, reportAttributeAccessIssue


def in_a_plan() -> None:
    step(reserve, timeout="a minute")  # wrong: call-overload, reportArgumentType
    step(reserve, time_out=60)  # wrong: call-overload, reportCallIssue
    step(reserve, backoff="quadratic")  # wrong: call-overload, reportArgumentType
    step(max_attempt=3)  # wrong: call-overload, reportCallIssue
    create_workflow("w").step(label, max_attempts="3")  # wrong: arg-type, reportArgumentType
    create_workflow("w").step(label, retries=3)  # wrong: call-arg, reportCallIssue
    create_workflow("w").policies(("label", {"time_out": 3}))  # wrong: typeddict-unknown-key, reportArgumentType
    create_workflow("w").delay("d", fortnights=2)  # wrong: call-arg, reportCallIssue
    branch("b", when=is_large, then=[pack], deadline=3)  # wrong: call-arg, reportCallIssue
    http_step("https://example.org", max_attempts=0.5)  # wrong: arg-type, reportArgumentType
    wait_event_step(Approved, on_timeout="retry")  # wrong: arg-type, reportArgumentType
    step(reserve, circuit_breaker=breaker("payments", failures="3"))  # wrong: arg-type, reportArgumentType
    delay_step(fortnights=2)  # wrong: arg-type, reportArgumentType


def in_a_step(ctx: Context, steps: OrderResults, log: StepLog) -> None:
    steps.reserve.result.height  # wrong: attr-defined, reportAttributeAccessIssue
    steps.reserved.result  # wrong: attr-defined, reportAttributeAccessIssue
    steps.label.result.text.total  # wrong: attr-defined, reportAttributeAccessIssue
    steps.label.outcome  # wrong: attr-defined, reportAttributeAccessIssue
    steps.label.status + 1  # wrong: operator, reportOperatorIssue
    steps.label.status == "complete"  # wrong: comparison-overlap, reportUnnecessaryComparison
    ctx.nothing  # wrong: attr-defined, reportAttributeAccessIssue
    log.shout("x")  # wrong: attr-defined, reportAttributeAccessIssue


@flow(policies=[("double", {"max_attempts": "3"})])  # wrong: typeddict-item, reportArgumentType
def in_a_flow(ctx: FlowContext) -> None:
    ctx.step(charge, 5, 7)  # wrong: arg-type, reportArgumentType
    ctx.step(charge, "o", "seven")  # wrong: arg-type, reportArgumentType
    ctx.step(charge, "o")  # wrong: arg-type, reportCallIssue
    ctx.step(charge, "o", 7, currencie="EUR")  # wrong: call-arg, reportCallIssue
    ctx.step(charge, "o", 7, currency=5)  # wrong: arg-type, reportArgumentType
    ctx.step(charge, "o", 7, max_attempt=3)  # wrong: call-arg, reportCallIssue
    ctx.step(charge, "o", 7, max_attempts="3")  # wrong: call-arg, reportCallIssue
    ctx.step(charge, "o", "seven", max_attempts=3)  # wrong: arg-type, reportCallIssue
    ctx.step(charge, "o", 7, compensate=double)  # wrong: call-arg, reportCallIssue
    ctx.step(patient_charge, 5, 7)  # wrong: call-overload, reportArgumentType
    ctx.step(patient_charge, "o", 7, currencie="EUR")  # wrong: call-arg, reportCallIssue
    ctx.step(http_step("https://example.org"))  # wrong: call-overload, reportCallIssue
    ctx.step(charge, "o", 7).totals  # wrong: attr-defined, reportAttributeAccessIssue
    ctx.step(fetch, "o").upper()  # wrong: attr-defined, reportAttributeAccessIssue
    ctx.start.step(double, "four")  # wrong: arg-type, reportArgumentType
    ctx.start.step(double, 4).result().upper()  # wrong: attr-defined, reportAttributeAccessIssue
    ctx.start.step(double, 4) + 1  # wrong: operator, reportOperatorIssue
    ctx.gather(ctx.start.step(double), ctx.spawn(quote))[1].x  # wrong: attr-defined, reportAttributeAccessIssue
    ctx.gather((double, 1), max_attempt=3)  # wrong: call-overload, reportCallIssue
    ctx.gather(5)  # wrong: call-overload, reportArgumentType
    ctx.first(ctx.start.step(double)).result().upper()  # wrong: attr-defined, reportAttributeAccessIssue
    ctx.sleep(fortnights=2)  # wrong: call-arg, reportCallIssue
    ctx.sleep("a minute")  # wrong: arg-type, reportArgumentType
    ctx.await_event(Approved, timeout=3).by  # wrong: union-attr, reportOptionalMemberAccess
    ctx.await_event(Approved).who  # wrong: attr-defined, reportAttributeAccessIssue
    ctx.await_event(Approved, kee="k")  # wrong: call-overload, reportCallIssue
    ctx.call(quote, 5).order  # wrong: attr-defined, reportAttributeAccessIssue
    ctx.call(5)  # wrong: call-overload, reportArgumentType
    ctx.spawn(quote, 5).result().order  # wrong: attr-defined, reportAttributeAccessIssue
    ctx.stp(double)  # wrong: attr-defined, reportAttributeAccessIssue


async def in_an_async_flow(ctx: AsyncFlowContext) -> None:
    await ctx.step(double, "four")  # wrong: arg-type, reportArgumentType
    await ctx.step(double, 4, max_attempt=3)  # wrong: call-arg, reportCallIssue
    await ctx.step(double, nummer=4)  # wrong: call-overload, reportCallIssue
    (await ctx.step(double, 4)).upper()  # wrong: attr-defined, reportAttributeAccessIssue
    ctx.step(double, 4) + 1  # wrong: operator, reportOperatorIssue
    ctx.step(double, 4)  # wrong: unused-coroutine, reportUnusedCoroutine
    ctx.sleep(days=3)  # wrong: unused-coroutine, reportUnusedCoroutine
    ctx.call(quote, 5).total  # wrong: attr-defined, reportAttributeAccessIssue
    (await ctx.call(quote, 5)).order  # wrong: attr-defined, reportAttributeAccessIssue
    (await ctx.spawn(quote, 5)).result().order  # wrong: attr-defined, reportAttributeAccessIssue
    (await ctx.gather(ctx.step(double), ctx.call(quote)))[1].x  # wrong: attr-defined, reportAttributeAccessIssue
    (await ctx.await_event(Approved, timeout=3)).by  # wrong: union-attr, reportOptionalMemberAccess
    ctx.now().isoformat()  # wrong: attr-defined, reportAttributeAccessIssue
    ctx.stp(double)  # wrong: attr-defined, reportAttributeAccessIssue


def in_a_client(rival: Rival) -> None:
    rival.runs(status="complete")  # wrong: arg-type, reportArgumentType
    rival.runs(status=["completed", "canceled"])  # wrong: list-item, reportArgumentType
    RunFilter(status="complete")  # wrong: arg-type, reportArgumentType
    rival.runs(state="completed")  # wrong: call-arg, reportCallIssue
    rival.state("r").status == "complete"  # wrong: comparison-overlap, reportUnnecessaryComparison
    rival.state("r").steps[0].status == "waiting_retries"  # wrong: comparison-overlap, reportUnnecessaryComparison
    rival.wait(run_id="r").status == "running"  # wrong: comparison-overlap, reportUnnecessaryComparison
    rival.run("orders").status == "completed"  # wrong: comparison-overlap, reportUnnecessaryComparison
    rival.send_event("paid", delivery="both")  # wrong: arg-type, reportArgumentType
    rival.bulk("delete", ["r"])  # wrong: arg-type, reportArgumentType


async def in_an_async_client(rival: AsyncRival) -> None:
    rival.run("orders")  # wrong: unused-coroutine, reportUnusedCoroutine
    rival.run("orders").run_id  # wrong: attr-defined, reportAttributeAccessIssue
    await rival.runs(status="complete")  # wrong: arg-type, reportArgumentType
    await rival.history(5)  # wrong: arg-type, reportArgumentType
    await rival.skip("r", "charge")  # wrong: call-arg, reportCallIssue
    (await rival.why("r")).reason  # wrong: attr-defined, reportAttributeAccessIssue
    await rival.schedule("orders", 60, name="hourly", queues="fast")  # wrong: call-arg, reportCallIssue
    rival.cancel("r")  # wrong: unused-coroutine, reportUnusedCoroutine
