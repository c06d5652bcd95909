"""Summarise a ticket, by the big model if it can be had and by the small one if not; then answer until it is polite."""

from _models import Overloaded, big_model, small_model
from pydantic import BaseModel

from rival_workers import RunInfo, StepError, Steps, branch, loop, step

name = "answer-ticket"
description = "Summarise a ticket and answer it"
TRIES = 3


class Input(BaseModel):
    text: str


def ask_big_model(input: Input, run: RunInfo) -> str:
    try:
        return big_model(input.text, run.attempt)
    except Overloaded as error:
        # Asked again a few times; after that the step has failed, and the run goes on.
        last = run.attempt >= TRIES
        raise StepError(str(error), behavior="continue" if last else "retry") from error


def stayed_away(steps: Steps) -> bool:
    return steps.ask_big_model.status == "failed"


def ask_small_model(input: Input) -> str:
    return small_model(input.text)


def summary(steps: Steps) -> str:
    return steps.ask_big_model.result or steps["fallback?"].result


def draft(index: int, steps: Steps) -> dict[str, object]:
    greeting = "Dear customer, " if index > 0 else ""
    return {"answer": f"{greeting}about your ticket: {steps.summary.result}", "drafts": index + 1}


def is_polite(last_step) -> bool:
    return str(last_step.result["answer"]).startswith("Dear")


steps = [
    step(ask_big_model, timeout=30, on_timeout="retry", max_attempts=TRIES, backoff="jitter", base_delay=0.1),
    branch("fallback?", when=stayed_away, then=[step(ask_small_model, timeout=10, max_attempts=2)]),
    summary,
    loop("answer", do=[draft], until=is_polite, max_iterations=5),
]
