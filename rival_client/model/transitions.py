"""The state machines of runs and steps, as data. Every guard of a statement comes from here (`rival_client.db.guards`),
and docs/reference/state-machines.md is generated from it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

#: "child": part of the transition of a step below it, guarded by the token of that step.
#: "completion_token": the token that an external step hands out; valid while its attempt runs and while it waits.
#: "lock": the exclusive lock of the run, which excludes every other transition of it.
Guard = Literal["execution_token", "timeout_token", "token", "child", "completion_token", "lock"]


@dataclass(frozen=True)
class Transition:
    """A verb: the statuses it may start from, the statuses it can lead to, and the token it must hold."""

    verb: str
    sources: frozenset[str]
    targets: frozenset[str]
    guard: Guard
    effect: str


def _of_guard(guard: Guard, effects: dict[tuple[str, str, str], str]) -> list[Transition]:
    """`effects`: (verb, sources, targets) -> effect."""
    return [
        Transition(verb, frozenset(sources.split()), frozenset(targets.split()), guard, effect)
        for (verb, sources, targets), effect in effects.items()
    ]


def _by_verb(*transitions: Transition) -> dict[str, Transition]:
    return {transition.verb: transition for transition in transitions}


OPEN = "pending running waiting_retry waiting"
_STARTABLE = "pending waiting_retry waiting"
_ENDED = "completed skipped failed"
_RUN_OPEN = "pending running suspended"

STEP_TRANSITIONS = _by_verb(
    *_of_guard(
        "execution_token",
        {
            ("claim_step", _STARTABLE, "running"): "attempts + 1, executor, start time and timeout set",
            ("finish_step", "running", _ENDED): "result and state stored, plan advanced, "
            "next step claimed or scheduled",
            ("retry_step", "running", "waiting_retry"): "due_at set, the failed attempt recorded",
            ("fall_back", "running", "waiting"): "the step waits for the function that it falls back to",
            ("postpone_step", "running", "waiting_retry"): "its circuit breaker is open, so it was not called; does "
            "not use up an attempt",
            ("take_over_step", "running", "pending"): "its executor was lost; does not use up an attempt",
            ("hand_back_step", "running", "pending"): "its executor cannot finish it; does not use up an attempt",
            ("suspend_step", "running", "waiting pending"): "a flow waits for a time, an event or a child, or starts "
            "over; does not use up an attempt",
            ("suspend_external_step", "running", "waiting"): "an external step waits for its answer; does not use up "
            "an attempt",
            ("beat_step", "running", "running"): "a heartbeat: progress, and more time",
            ("apply_policy", "running", "running"): "the claim has shown that the run has rules of its own: another "
            "timeout",
            ("queue_step", _STARTABLE, "waiting"): "one of its limits is full: it waits with a ticket",
            (
                "queue_running",
                "running",
                "waiting",
            ): "another step owns its idempotency key: it waits with a ticket; does not use up an attempt",
            ("park_step", _STARTABLE, _STARTABLE): "no worker here knows the step; looked at again later",
        },
    ),
    *_of_guard(
        "timeout_token",
        {
            ("time_out_finish", "running", _ENDED): "as finish_step, with StepTimeout; the running attempt's late "
            "result is stale",
            ("time_out_retry", "running", "waiting_retry"): "as retry_step, with StepTimeout",
            ("time_out_fall_back", "running", "waiting"): "as fall_back, with StepTimeout",
            ("expire_step", _STARTABLE, f"{_ENDED} waiting"): "no worker has begun it within its queue_timeout, or its "
            "deadline is over",
        },
    ),
    *_of_guard(
        "completion_token",
        {
            ("answer_step", "running waiting", "pending"): "an external system has completed or failed the step; the "
            "next claim ends it that way",
            ("beat_external_step", "running waiting", "running waiting"): "a heartbeat of the external system: "
            "progress, and more time",
        },
    ),
    *_of_guard(
        "child",
        {
            ("wake_step", "waiting", "pending"): "what it waited for has come",
            ("end_checkpoint", "waiting", "completed failed"): "what a flow waited for at this checkpoint has come",
            ("close_step", "waiting", _ENDED): "a composite ends within the finish of the last step below it",
            ("end_fallback", "waiting", _ENDED): "a step ends with the function that it has fallen back to",
            ("retry_with", "waiting", "waiting_retry"): "the function that a step has fallen back to asks for one more "
            "attempt",
            ("cancel_below", OPEN, "cancelled"): "with the composite around it, which has failed",
        },
    ),
    *_of_guard(
        "token",
        {
            ("cancel_run", OPEN, "cancelled"): "with the whole run",
            ("settle_step", OPEN, "completed skipped"): "an operator's skip or set_result: as finish_step, without an "
            "attempt",
            ("unqueue_step", "waiting", "pending"): "its ticket is withdrawn: its run is paused, or no worker here "
            "knows the step",
            ("revive_step", f"waiting {_ENDED} cancelled", "waiting pending"): "an operator's retry or rewind: a "
            "composite or a flow's sleep waits again, a flow's wait for an event is pending until the flow reaches it; "
            "steps begin again as new rows",
        },
    ),
)

RUN_TRANSITIONS = _by_verb(
    *_of_guard(
        "token",
        {
            ("begin_run", "pending", "running"): "the first step is claimed in the same statement",
            ("queue_run", "pending", "pending"): "a limit of its workflow is full: it waits with a ticket",
            ("park_run", "pending", "pending"): "no worker here knows the version; looked at again later",
            ("end_run", "running suspended", "completed failed cancelled"): "within the last step's finish",
            ("cancel_run", _RUN_OPEN, "cancelled"): "all open steps too",
            ("retry_run", "failed cancelled", "running pending"): "an operator's: continues where it stopped; pending "
            "if it had never begun",
            ("rewind_run", "running suspended completed failed cancelled", "running"): "an operator's: continues from "
            "an earlier step; the rows of later steps are deleted",
        },
    ),
    *_of_guard(
        "child",
        {
            ("suspend_run", "running", "suspended"): "its only open step waits",
            ("wake_run", "suspended", "running"): "the step that it waited for goes on",
        },
    ),
    *_of_guard(
        "lock",
        {
            (
                "gather_run",
                "pending",
                "pending",
            ): "another start becomes part of a debounced run or a batch: its input and due_at change",
            ("expire_run", _RUN_OPEN, "running failed"): "its deadline has passed: its open steps are cancelled and it "
            "fails, after compensations and handlers",
            (
                "begin_cancel",
                "running suspended",
                "running",
            ): "its open steps are cancelled; workers undo the others, and end it",
            ("pause_run", _RUN_OPEN, _RUN_OPEN): "an operator's: nothing of it starts until it is resumed",
            ("resume_run", _RUN_OPEN, _RUN_OPEN): "an operator's: everything that is due starts",
        },
    ),
)

#: Operator verbs: no other verb leads out of a terminal status. The history records each with the operator's name.
OPERATORS = frozenset({"settle_step", "revive_step", "retry_run", "rewind_run"})


def step_sources(verb: str) -> frozenset[str]:
    return STEP_TRANSITIONS[verb].sources


def run_sources(verb: str) -> frozenset[str]:
    return RUN_TRANSITIONS[verb].sources
