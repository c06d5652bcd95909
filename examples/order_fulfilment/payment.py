"""Paying: authorise, then capture. A card that is refused fails the payment; a busy gateway is asked again. Should the
order fail later, the money goes back.
"""

from pydantic import BaseModel

from rival_workers import RunInfo, StepError, Steps, step

description = "Take a payment"


class Input(BaseModel):
    customer: str
    amount: int


def authorise(input: Input, run: RunInfo) -> dict[str, object]:
    if input.customer == "mallory":
        raise StepError("the card was refused")
    if run.attempt == 1:
        raise StepError("the gateway is busy", behavior="retry")
    return {"authorisation": f"auth-{run.run_id}"}


def capture(input: Input, steps: Steps, run: RunInfo) -> dict[str, object]:
    # The run's id makes the capture idempotent: should this be done twice, the gateway charges once.
    return {"payment": f"pay-{run.run_id}", "amount": input.amount, "of": steps.authorise.result["authorisation"]}


def refund(result: dict[str, object], log) -> dict[str, object]:
    log.info("the money goes back", payment=result["payment"])
    return {"refund": result["amount"]}


steps = [step(authorise, max_attempts=3, base_delay=0.1), step(capture, timeout=10, compensate=refund)]
