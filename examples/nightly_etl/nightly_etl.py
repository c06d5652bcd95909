"""Extract, transform and load a day's accounts, each on its own, and report."""

import datetime as dt

from pydantic import BaseModel

from rival_workers import StepError, Steps, for_each, step

description = "Load a day's accounts"


class Input(BaseModel):
    day: dt.date
    accounts: int = 1000


def list_accounts(input: Input) -> list[int]:
    return list(range(input.accounts))


def extract(item: int, input: Input) -> dict[str, object]:
    if item % 100 == 99:
        raise StepError(f"account {item} is locked")
    return {"account": item, "cents": [item, 2 * item], "day": input.day}


def load(last_step) -> int:
    return sum(last_step.result["cents"])


def report(steps: Steps) -> dict[str, int]:
    loaded = [cents for cents in steps.accounts.result if cents is not None]
    return {"loaded": len(loaded), "failed": len(steps.accounts.result) - len(loaded), "cents": sum(loaded)}


steps = [
    for_each(
        "accounts",
        items=list_accounts,
        do=[step(extract, max_attempts=2, base_delay=0.1), load],
        concurrency=50,
        on_failure="continue",
    ),
    report,
]
