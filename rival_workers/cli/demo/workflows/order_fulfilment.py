"""An order: check it, charge the card, ship, notify the customer. The payment gateway is busy at first."""

from pydantic import BaseModel

from rival_workers import RunInfo, StepError, StepLog, Steps, StepState, StepView, step

description = "Charge and ship an order"


class Input(BaseModel):
    customer: str
    items: dict[str, int]
    email: str | None = None


PRICES = {"axe": 40, "gloves": 15, "rope": 25}


def validate(input: Input, state: StepState) -> dict[str, int]:
    unknown = sorted(set(input.items) - set(PRICES))
    if unknown:
        raise StepError(f"we do not sell {', '.join(unknown)}")
    total = sum(PRICES[name] * count for name, count in input.items.items())
    state.description = f"{len(input.items)} items, {total} €"
    return {"total": total}


def charge(run: RunInfo, steps: Steps, log: StepLog) -> dict[str, object]:
    if run.attempt < 3:
        log.warning("the gateway is busy", attempt=run.attempt)
        raise StepError("payment gateway: 503, try again", behavior="retry")
    # The run's id makes the payment idempotent: the same attempt twice charges once.
    return {"payment": f"pay-{run.run_id}", "amount": steps.validate.result["total"]}


def ship(last_step: StepView) -> dict[str, object]:
    return {"parcel": str(last_step.result["payment"]).replace("pay-", "parcel-")}


async def notify(input: Input, last_step: StepView, state: StepState) -> dict[str, object] | None:
    if input.email is None:
        state.skipped = True
        state.description = "no address given"
        return None
    return {"sent_to": input.email, "parcel": last_step.result["parcel"]}


steps = [
    validate,
    step(charge, max_attempts=5, backoff="exponential", base_delay=0.4),
    ship,
    notify,
]
