"""Asks a supplier again and again, without holding a worker in between. The demo cancels it while it waits."""

from pydantic import BaseModel

from rival_workers import StepError, StepView, step

description = "Ask a supplier for a quote until there is an answer"


class Input(BaseModel):
    part: str


def request_quote(input: Input) -> dict[str, str]:
    return {"ticket": f"quote-{input.part}"}


def await_answer(last_step: StepView) -> dict[str, int]:
    raise StepError(f"no answer to {last_step.result['ticket']} yet", behavior="retry")


def order_part(last_step: StepView) -> dict[str, int]:
    return {"ordered_at": last_step.result["price"]}


steps = [request_quote, step(await_answer, max_attempts=100, backoff="linear", base_delay=20), order_part]
