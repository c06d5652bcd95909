"""The runs of the demo, and how each of them must end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rival_client.model.kinds import HANDLER
from rival_client.model.records import RunState, Step


@dataclass(frozen=True)
class Role:
    """One run: what it is started with, and what must be true of it in the end."""

    name: str
    workflow: str
    input: dict[str, Any]
    shows: str
    check: Callable[[RunState], bool]


def problems(role: Role, state: RunState) -> list[str]:
    """What is not as it should be; nothing, if all is well."""
    try:
        as_expected = role.check(state)
    except (KeyError, TypeError):  # a step that was never reached, or without a result
        as_expected = False
    if as_expected:
        return []
    steps = ", ".join(f"{step.path} {step.status} (attempt {step.attempts})" for step in state.steps)
    return [f"{role.name} ended {state.status}, not as expected: {steps}"]


def _steps(state: RunState) -> dict[str, Step]:
    return {step.path: step for step in state.steps}


def _retried(state: RunState) -> bool:
    steps = _steps(state)
    outcomes = [attempt.outcome for attempt in state.attempts if attempt.path == "charge"]
    return (
        state.status == "completed" and steps["charge"].attempts == 3 and outcomes[:2] == ["failed", "failed"]
        and steps["notify"].result["sent_to"] == "ada@example.com"
    )  # fmt: skip


def _skipped(state: RunState) -> bool:
    return state.status == "completed" and _steps(state)["notify"].status == "skipped"


def _timed_out(state: RunState) -> bool:
    outcomes = [attempt.outcome for attempt in state.attempts if attempt.path == "render"]
    in_time = state.status == "completed" and _steps(state)["render"].result == {"pages": 12}
    return in_time and outcomes[0] == "timed_out" and _steps(state)["render"].attempts == 2


def _taken_over(state: RunState) -> bool:
    encode = _steps(state)["encode"]
    return state.status == "completed" and encode.lost == 1 and encode.attempts == 1


def _handled(state: RunState) -> bool:
    """Failed at the charge; its own handler ran first, then the workflow's; nothing after it was started."""
    steps = _steps(state)
    handlers = [step.path for step in state.steps if step.kind == HANDLER and step.status == "completed"]
    return (
        state.status == "failed" and state.failed_step == "charge_card"
        and handlers == ["charge_card!on_error", "!on_error"] and "extend" not in steps
    )  # fmt: skip


def _cancelled(state: RunState) -> bool:
    return state.status == "cancelled" and _steps(state)["await_answer"].status == "cancelled"


KILLED, CANCELLED = "video", "quote"

CAST = (
    Role("order", "order-fulfilment", {"customer": "Ada", "items": {"axe": 1, "rope": 2}, "email": "ada@example.com"},
         "the charge fails twice and is retried", _retried),
    Role("order-2", "order-fulfilment", {"customer": "Ben", "items": {"gloves": 1}},
         "the last step skips itself", _skipped),
    Role("report", "sales-report", {"month": "2030-01"}, "the renderer hangs: timeout, then a retry", _timed_out),
    Role(KILLED, "video-encoding", {"video": "lumberjack"}, "its worker is killed with SIGKILL: takeover", _taken_over),
    Role("renewal", "subscription-renewal", {"account": "acme", "card": "4000-0002"},
         "the card is declined: on_error handlers, then failed", _handled),
    Role(CANCELLED, "supplier-quote", {"part": "saw chain"}, "waits for an answer until it is cancelled", _cancelled),
)  # fmt: skip
