"""A report whose renderer hangs now and then: a timeout ends the attempt, and the next one is quick."""

import time

from pydantic import BaseModel

from rival_workers import RunInfo, Steps, StepView, step

description = "Collect the month's figures and render them"


class Input(BaseModel):
    month: str


def collect(input: Input) -> dict[str, object]:
    time.sleep(0.3)
    return {"month": input.month, "orders": 1284, "revenue": 51_360}


def render(run: RunInfo, last_step: StepView) -> dict[str, int]:
    if run.attempt == 1:
        time.sleep(2.5)  # hangs; by now the attempt has timed out, and whatever it returns is refused
    return {"pages": 12}


def publish(steps: Steps) -> dict[str, str]:
    return {"url": f"https://reports.example/{steps.collect.result['month']}.pdf"}


steps = [collect, step(render, timeout=1, on_timeout="retry", max_attempts=3, base_delay=0.3), publish]
