"""A renewal whose card is declined: the step's own handler runs, then the workflow's, and the run has failed."""

from typing import Any

from pydantic import BaseModel

from rival_workers import StepLog, StepView, step

description = "Renew a subscription; handle a declined card"


class Input(BaseModel):
    account: str
    card: str


class CardDeclined(Exception):
    pass


def reserve_licence(input: Input) -> dict[str, str]:
    return {"licence": f"licence-of-{input.account}"}


def charge_card(input: Input) -> dict[str, bool]:
    if input.card.endswith("0002"):
        raise CardDeclined("the bank says no: insufficient funds")
    return {"charged": True}


def extend(last_step: StepView) -> dict[str, str]:
    return {"valid_until": "2030-12-31"}


def release_licence(error: dict[str, Any], log: StepLog) -> dict[str, bool]:
    log.warning("released the licence", because=error["message"])
    return {"released": True}


def on_error(error: dict[str, Any], input: Input, log: StepLog) -> dict[str, str]:
    log.error("renewal failed", account=input.account, because=error["message"])
    return {"told": "support@shop.example"}


steps = [reserve_licence, step(charge_card, on_error=release_licence), extend]
