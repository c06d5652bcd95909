"""Workflows that the browser tests and the screenshots show: composites of all types, retries, compensations, waits."""

from __future__ import annotations

import datetime as dt
import time
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, SecretStr

from rival_client import Rival
from rival_workers import (
    RunInfo,
    StepError,
    breaker,
    create_workflow,
    flow,
    for_each,
    limit,
    loop,
    parallel,
    step,
    wait_event_step,
    workflow,
)
from rival_workers.dashboard.ids import in_path
from rival_workers.definition.registry import Registry
from rival_workers.definition.workflow import WorkflowDefinition

__all__ = ["HOSTILE", "in_path", "order", "registry", "seed"]


class Tier(StrEnum):
    retail = "retail"
    wholesale = "wholesale"
    staff = "staff"


class Customer(BaseModel):
    name: str = Field(examples=["Outdoor Depot", "L. Okafor"])
    email: str | None = None
    tier: Tier = Tier.retail


class Line(BaseModel):
    sku: str = Field(examples=["axe", "gloves", "rope"])
    count: int = Field(default=1, ge=1, le=10_000)
    gift: bool = False


class Card(BaseModel):
    kind: Literal["card"] = "card"
    number: SecretStr
    expires: str = "2028-04"


class Invoice(BaseModel):
    kind: Literal["invoice"] = "invoice"
    reference: str


class Order(BaseModel):
    customer: Customer
    lines: list[Line] = Field(min_length=1, max_length=500)
    pay: Annotated[Card | Invoice, Field(discriminator="kind")]
    deliver_by: dt.date | None = None
    note: str | None = None


PRICES = {"axe": 40, "gloves": 15, "rope": 25}


def price(input: Order, log: Any) -> dict[str, int]:
    unknown = sorted({line.sku for line in input.lines} - set(PRICES))
    if unknown:
        raise StepError(f"we do not sell {', '.join(unknown)}")
    total = sum(PRICES[line.sku] * line.count for line in input.lines)
    log.info("priced", lines=len(input.lines), total=total)
    return {"total": total}


def everything_is_there(input: Order) -> bool:
    return all(line.sku != "rope" for line in input.lines)


def authorise(input: Order, run: RunInfo, log: Any) -> dict[str, str]:
    if run.attempt == 1:
        log.warning("the gateway is busy")
        raise StepError("the gateway is busy", behavior="retry")
    return {"authorisation": f"auth-{run.run_id}"}


def capture(input: Order, steps: Any) -> dict[str, Any]:
    time.sleep(0.05)
    return {"payment": "pay-1", "of": steps.authorise.result["authorisation"]}


def refund(result: dict[str, Any], log: Any) -> dict[str, str]:
    log.info("the money goes back", payment=result["payment"])
    return {"refunded": result["payment"]}


def pick(input: Order) -> list[str]:
    time.sleep(0.03)
    return sorted(line.sku for line in input.lines)


def put_back(result: list[str]) -> dict[str, list[str]]:
    return {"back on the shelf": result}


class CarrierRefused(Exception):
    """No carrier takes the parcels."""


def book_carrier(input: Order, log: Any) -> dict[str, str]:
    log.info("asking dhl, dpd, gls", parcels=sum(line.count for line in input.lines))
    if sum(line.count for line in input.lines) > 50:
        log.error("all three have refused")
        raise CarrierRefused(f"no carrier takes {sum(line.count for line in input.lines)} parcels before Friday")
    return {"carrier": "dhl"}


def write_invoice(steps: Any) -> dict[str, str]:
    return {"invoice": f"{steps.price.result['total']} €"}


def label_items(input: Order) -> list[dict[str, Any]]:
    return [{"sku": line.sku, "piece": piece} for line in input.lines for piece in range(min(line.count, 12))]


def make_label(item: dict[str, Any]) -> str:
    return f"{item['sku']}-{item['piece']}"


def put_on_waiting_list(input: Order) -> dict[str, list[str]]:
    return {"waiting": sorted(line.sku for line in input.lines)}


def notify(input: Order, log: Any) -> dict[str, str]:
    log.info("told the customer", name=input.customer.name)
    return {"told": input.customer.name}


def notify_support(error: dict[str, Any], log: Any) -> None:
    log.error("an order has failed", why=error["message"])


class Ticket(BaseModel):
    text: str = Field(max_length=2000)
    wait_seconds: float = 3600


def read_ticket(input: Ticket) -> dict[str, int]:
    return {"words": len(input.text.split())}


class Expense(BaseModel):
    number: str
    amount: int = Field(ge=0)


def number_of(input: Expense) -> str:
    return input.number


def charge(input: Expense) -> int:
    return input.amount


def pay_out(steps: Any) -> Any:
    return steps.decision.result


class Load(BaseModel):
    accounts: int = Field(default=40, ge=0, le=20_000)
    slow: float = 0.0


def accounts(input: Load) -> list[int]:
    return list(range(input.accounts))


def extract(item: int, input: Load) -> dict[str, int]:
    if input.slow:
        time.sleep(input.slow)
    if item % 100 == 17:
        raise StepError(f"account {item} is locked")
    return {"account": item, "cents": item * 7}


def report(steps: Any) -> dict[str, int]:
    return {"loaded": sum(one is not None for one in steps.accounts.result)}


class Signup(BaseModel):
    email: str
    checkpoints: int = Field(default=3, ge=0, le=20_000)
    wait: bool = True


def create_user(email: str) -> dict[str, str]:
    return {"id": email.partition("@")[0]}


def greet(number: int) -> int:
    return number


class Slow(BaseModel):
    seconds: float = Field(default=0.2, ge=0, le=60)
    fail: bool = False


def first(input: Slow) -> str:
    time.sleep(input.seconds)
    return "first"


def second(input: Slow) -> str:
    time.sleep(input.seconds)
    if input.fail:
        raise StepError("told to fail")
    return "second"


def third(input: Slow) -> str:
    time.sleep(input.seconds)
    return "third"


def send_letter(input: Slow) -> str:
    if input.fail:
        raise StepError("the post office is closed")
    return "sent"


def seal(input: Slow) -> str:
    return "sealed"


def is_ready(index: int) -> int:
    return index


def enough(index: int) -> bool:
    return index >= 4


HOSTILE = "<img src=x onerror=alert(1)>"
#: A workflow whose ended runs a test deletes.
SHORT_LIVED = "short_lived"


def fails_with_markup(log: Any) -> None:
    log.error(HOSTILE, field=HOSTILE)
    raise StepError(HOSTILE)


def ask_vendor(ctx: Any, log: Any) -> None:
    log.info("asked", reply_to=ctx.completion_token)


def registry() -> Registry:
    """All of them; a registry of its own, so that tests do not share definitions."""
    made = Registry()
    payment = (
        create_workflow("payment")
        .input(Order)
        .step(authorise, max_attempts=3, base_delay=0.05)
        .step(capture, compensate=refund)
        .register(made)
    )
    labels = for_each("labels", items=label_items, do=[make_label], concurrency=4)
    (
        create_workflow("order_fulfilment", description="Fulfil an order")
        .input(Order)
        .step(price)
        .branch(
            "in-stock?",
            when=everything_is_there,
            then=[
                workflow(payment, name="payment"),
                step(pick, compensate=put_back),
                parallel("send", [step(book_carrier, max_attempts=3), write_invoice, labels]),
            ],
            otherwise=[put_on_waiting_list],
        )
        .step(notify)
        .on_error(notify_support)
        .register(made)
    )
    create_workflow("answer_ticket").input(Ticket).step(read_ticket).delay("cool_down", hours=1).register(made)
    waits = wait_event_step("expense.decided", name="decision", key=number_of, timeout=172_800)
    create_workflow("expense").input(Expense).steps([waits, pay_out]).register(made)
    each = for_each("accounts", items=accounts, do=[extract], concurrency=8, on_failure="continue")
    create_workflow("nightly_etl", description="Load a day's accounts").input(Load).steps([each, report]).register(made)
    create_workflow("slow_steps", description="Three slow steps").input(Slow).steps([first, second, third]).register(
        made
    )
    made.add(letters())
    asks_again = loop("until-ready", do=[is_ready], until=enough)
    create_workflow("polling", description="Ask until it is ready").steps([asks_again]).register(made)
    charges = step(charge, idempotency_key="charge:{input.number}")
    create_workflow("charging", description="Charge once for each key").input(Expense).steps([charges]).register(made)
    bad = step(fails_with_markup, name="x", max_attempts=1)
    create_workflow(HOSTILE, description=HOSTILE).steps([bad]).register(made)
    asks = step(ask_vendor, execution_mode="external", deadline=86_400)
    create_workflow("buying", description="Wait for a vendor's price").steps([asks]).register(made)
    create_workflow(SHORT_LIVED, description="Deleted soon after its end").input(Slow).steps([seal]).register(made)
    flow("onboarding", input=Signup, description="Welcome a new user", registry=made)(onboarding)
    return made


def letters(*, earlier: bool = False) -> WorkflowDefinition:
    """`earlier`: the version before the current one, which sealed each letter and tried three times."""
    post = {"concurrency_limit": limit("stamps", 2), "circuit_breaker": breaker("post-office", failures=50)}
    sends = step(send_letter, max_attempts=3 if earlier else 1, on_failure="dead_letter", **post)  # type: ignore[arg-type]
    named = create_workflow("letters", description="Send a letter").input(Slow)
    return named.steps([seal, sends] if earlier else [sends]).build()


def onboarding(ctx: Any, input: Signup) -> dict[str, Any]:
    user = ctx.step(create_user, input.email)
    for number in range(input.checkpoints):
        ctx.step(greet, number)
    if not input.wait:
        return {"user": user}
    return {"user": user, "reply": ctx.await_event("reply", key=user["id"], timeout=604_800)}


CARD = {"kind": "card", "number": "4000000000000077"}


def order(name: str, *lines: tuple[str, int], **more: Any) -> dict[str, Any]:
    """The input of an order; more than 50 pieces are refused by all carriers."""
    bought = [{"sku": sku, "count": count} for sku, count in lines]
    return {"customer": {"name": name}, "lines": bought, "pay": CARD, **more}


def seed(rival: Rival) -> None:
    """A run in each status, each with the id that the tests know."""
    rival.run("order_fulfilment", order("M. Ferreira", ("axe", 2)), run_id="order-done")
    rival.run("order_fulfilment", order("T. Brandt", ("lantern", 1)), run_id="order-unknown")
    rival.run("order_fulfilment", order("Hill & Sons", ("rope", 1)), run_id="order-waiting-list")
    rival.run("order_fulfilment", order("Outdoor Depot", ("axe", 400), ("gloves", 12)), run_id="order-refused")
    rival.run("answer_ticket", {"text": "My tent arrived without poles"}, run_id="ticket-1")
    rival.run("expense", {"number": "2209", "amount": 480}, run_id="expense-2209")
    rival.run("onboarding", {"email": "ann@example.com"}, run_id="onboarding-ann")
    rival.run("onboarding", {"email": "bob@example.com", "wait": False}, run_id="onboarding-done")
    rival.run("nightly_etl", {"accounts": 60}, run_id="etl-60")
    rival.run("letters", {"fail": True}, run_id="letter-1")
    rival.schedule("slow_steps", "0 3 * * *", name="reports", timezone="Europe/Berlin", input={"seconds": 0})
    rival.run("slow_steps", {"seconds": 0.3}, run_id="cancelled-1")
    rival.cancel("cancelled-1")
    rival.run("slow_steps", {"seconds": 0.3}, run_id="paused-1")
    rival.pause("paused-1")
    for workflow_name, known in (("order_fulfilment", "order-refused"), ("nightly_etl", "etl-60")):
        rival.wait(workflow_name, known, timeout=60)
