"""Summarise a ticket, by the big model if it can be had and by the small one if not; then answer until it is polite."""

from _models import BadPrompt, ask
from pydantic import BaseModel

from rival_workers import RunInfo, Steps, breaker, loop, rate, step

name = "answer-ticket"
description = "Summarise a ticket and answer it"


class Input(BaseModel):
    text: str
    tenant: str = "nobody"


def summarise(input: Input, run: RunInfo) -> str:
    return ask("big", input.text, run.attempt)


def summarise_cheaply(input: Input, run: RunInfo) -> str:
    """The fallback: another model, without the circuit breaker of the big one."""
    return ask("small", input.text, run.attempt)


def draft(index: int, steps: Steps, run: RunInfo) -> dict[str, object]:
    greeting = "Dear customer, " if index > 0 else ""
    answer = ask("writer", f"{greeting}about your ticket: {steps.summarise.result}", run.attempt)
    return {"answer": answer, "drafts": index + 1}


def is_polite(last_step) -> bool:
    return "Dear" in last_step.result["answer"]


# For every call of a model. They share the budget: however often the loop goes round, a run whose provider is down
# makes five retries and then stops, instead of two for each draft.
retries = {
    "timeout": 30,
    "max_retries": 2,
    "no_retry_on": (BadPrompt,),
    "backoff": "jitter",
    "base_delay": 0.1,
    "retry_budget": 5,
    # What no model has answered waits for an operator: `rival dlq ls`, `rival dlq redrive`.
    "on_failure": "dead_letter",
}

steps = [
    step(
        summarise,
        **retries,
        # No tenant takes the provider away from the others.
        rate_limit=rate(20, per=1, key="input.tenant"),
        # After ten failures within a minute, on all workers, the big model is left alone for half a minute.
        circuit_breaker=breaker("big-model", failures=10, window=60, reset=30, on_open="fallback"),
        fallback=summarise_cheaply,
    ),
    loop("answer", do=[step(draft, **retries)], until=is_polite, max_iterations=5),
]
