"""The runs of the demo, and how each must end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rival_client.model import history_entries as entries
from rival_client.model import statuses
from rival_client.model.kinds import HANDLER
from rival_client.model.records import RunState
from rival_client.model.step_records import Step


@dataclass(frozen=True)
class DemoRun:
    """One run: its input, and the check of its final state."""

    name: str
    workflow: str
    input: dict[str, Any]
    shows: str
    check: Callable[[RunState], bool]


def problems(run: DemoRun, state: RunState) -> list[str]:
    """Why the final state is not the expected one; empty if it is."""
    try:
        as_expected = run.check(state)
    except (KeyError, TypeError):  # a step that was never reached, or without a result
        as_expected = False
    if as_expected:
        return []
    steps = ", ".join(f"{step.path} {step.status} (attempt {step.attempts})" for step in state.steps)
    return [f"{run.name} ended {state.status}, not as expected: {steps}"]


def _steps(state: RunState) -> dict[str, Step]:
    return {step.path: step for step in state.steps}


def _retried(state: RunState) -> bool:
    steps = _steps(state)
    outcomes = [attempt.outcome for attempt in state.attempts if attempt.path == "charge"]
    charged = steps["charge"].attempts == 3 and outcomes[:2] == [entries.FAILED, entries.FAILED]
    return state.status == statuses.COMPLETED and charged and steps["notify"].result["sent_to"] == "ada@example.com"


def _skipped(state: RunState) -> bool:
    return state.status == statuses.COMPLETED and _steps(state)["notify"].status == statuses.SKIPPED


def _timed_out(state: RunState) -> bool:
    outcomes = [attempt.outcome for attempt in state.attempts if attempt.path == "render"]
    rendered = state.status == statuses.COMPLETED and _steps(state)["render"].result == {"pages": 12}
    return rendered and outcomes[0] == entries.TIMED_OUT and _steps(state)["render"].attempts == 2


def _taken_over(state: RunState) -> bool:
    encode = _steps(state)["encode"]
    return state.status == statuses.COMPLETED and encode.lost == 1 and encode.attempts == 1


def _handled(state: RunState) -> bool:
    """Failed at the charge; its own handler ran before the workflow's; no later step was started."""
    failed = state.status == statuses.FAILED and state.failed_step == "charge_card"
    handlers = [step.path for step in state.steps if step.kind == HANDLER and step.status == statuses.COMPLETED]
    return failed and handlers == ["charge_card!on_error", "!on_error"] and "extend" not in _steps(state)


def _cancelled(state: RunState) -> bool:
    return state.status == statuses.CANCELLED and _steps(state)["await_answer"].status == statuses.CANCELLED


KILLED, CANCELLED = "video", "quote"
_ORDER = {"customer": "Ada", "items": {"axe": 1, "rope": 2}, "email": "ada@example.com"}
_SMALL_ORDER = {"customer": "Ben", "items": {"gloves": 1}}
_RENEWAL = {"account": "acme", "card": "4000-0002"}
_TIMEOUT_SHOWN = "the renderer hangs: timeout, then a retry"
_TAKEOVER_SHOWN = "its worker is killed with SIGKILL: takeover"
_HANDLERS_SHOWN = "the card is declined: on_error handlers, then failed"
_CANCEL_SHOWN = "waits for an answer until it is cancelled"

DEMO_RUNS = (
    DemoRun("order", "order-fulfilment", _ORDER, "the charge fails twice and is retried", _retried),
    DemoRun("order-2", "order-fulfilment", _SMALL_ORDER, "the last step skips itself", _skipped),
    DemoRun("report", "sales-report", {"month": "2030-01"}, _TIMEOUT_SHOWN, _timed_out),
    DemoRun(KILLED, "video-encoding", {"video": "lumberjack"}, _TAKEOVER_SHOWN, _taken_over),
    DemoRun("renewal", "subscription-renewal", _RENEWAL, _HANDLERS_SHOWN, _handled),
    DemoRun(CANCELLED, "supplier-quote", {"part": "saw chain"}, _CANCEL_SHOWN, _cancelled),
)
