"""The state machines of runs and steps, as data. The stores take their guards from here, the docs are made from it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

#: "child": the token is that of the step below, whose finish it is part of.
#: "completion_token": what an external step has handed out; good while its attempt runs, and while it waits after it.
Guard = Literal["execution_token", "timeout_token", "token", "child", "completion_token"]


@dataclass(frozen=True)
class Transition:
    """A verb: where it may start, where it can lead, and which token it must hold."""

    verb: str
    sources: frozenset[str]
    targets: frozenset[str]
    guard: Guard
    effect: str


def _t(verb: str, sources: str, targets: str, guard: Guard, effect: str) -> Transition:
    return Transition(verb, frozenset(sources.split()), frozenset(targets.split()), guard, effect)


OPEN = "pending running waiting_retry waiting"

STEP_TRANSITIONS: dict[str, Transition] = {
    t.verb: t
    for t in (
        _t("claim_step", "pending waiting_retry waiting", "running", "execution_token",
           "attempts + 1, executor, start time and timeout set"),
        _t("finish_step", "running", "completed skipped failed", "execution_token",
           "result and state stored, plan advanced, next step claimed or scheduled"),
        _t("retry_step", "running", "waiting_retry", "execution_token",
           "due_at set, the failed attempt recorded"),
        _t("time_out_finish", "running", "failed", "timeout_token",
           "as finish_step, with StepTimeout; the running attempt's late result is stale"),
        _t("time_out_retry", "running", "waiting_retry", "timeout_token",
           "as retry_step, with StepTimeout"),
        _t("release_step", "running", "pending", "execution_token",
           "lost with its executor or handed back; does not use up an attempt"),
        _t("suspend_step", "running", "waiting pending", "execution_token",
           "a flow waits for a time, an event or a child, or starts over; an external step waits for its answer; "
           "does not use up an attempt"),
        _t("answer_step", "running waiting", "pending", "completion_token",
           "an external system has completed or failed the step; the next claim ends it that way"),
        _t("beat_step", "running", "running", "execution_token", "a heartbeat: progress, and more time"),
        _t("wake_step", "waiting", "pending", "child", "what it waited for has come"),
        _t("park_step", "pending waiting_retry waiting", "pending waiting_retry waiting", "execution_token",
           "no worker here knows the step; looked at again later"),
        _t("close_step", "waiting", "completed skipped failed", "child",
           "a composite ends within the finish of the last step below it"),
        _t("cancel_below", OPEN, "cancelled", "child", "with the composite around it, which has failed"),
        _t("cancel_run", OPEN, "cancelled", "token", "with the whole run"),
        _t("settle_step", OPEN, "completed skipped", "token",
           "an operator's skip or set_result: as finish_step, without an attempt"),
        _t("revive_step", "waiting completed skipped failed cancelled", "waiting pending", "token",
           "an operator's retry or rewind: a composite or a flow's sleep waits again, a flow's wait for an event is "
           "pending until the flow reaches it; steps begin again as new rows"),
    )
}  # fmt: skip

RUN_TRANSITIONS: dict[str, Transition] = {
    t.verb: t
    for t in (
        _t("begin_run", "pending", "running", "token", "the first step is claimed in the same statement"),
        _t("park_run", "pending", "pending", "token", "no worker here knows the version; looked at again later"),
        _t("end_run", "running suspended", "completed failed", "token", "within the last step's finish"),
        _t("cancel_run", "pending running suspended", "cancelled", "token", "all open steps too"),
        _t("retry_run", "failed cancelled", "running pending", "token",
           "an operator's: goes on where it has stopped; pending if it had never begun"),
        _t("rewind_run", "running suspended completed failed cancelled", "running", "token",
           "an operator's: goes on from an earlier step, and what came after it is undone"),
    )
}  # fmt: skip

#: An operator's verbs: nothing else leads out of a terminal state. Each is recorded in the history with who did it.
OPERATORS = frozenset({"settle_step", "revive_step", "retry_run", "rewind_run"})


def step_sources(verb: str) -> frozenset[str]:
    return STEP_TRANSITIONS[verb].sources


def run_sources(verb: str) -> frozenset[str]:
    return RUN_TRANSITIONS[verb].sources
