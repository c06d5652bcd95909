"""Options of steps that another kind of node cannot have, and what to write instead."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rival_client.model.kinds import FLOW
from rival_client.model.policies.matchers import Node
from rival_client.model.policies.option_fields import FIELDS, can_have
from rival_workers.definition.given_steps import options_for

_ONE_STEP = "give it to a step within, or to a step before or after it"
_INSTEAD = {
    "concurrency_limit": "give it to the steps that it limits, or to the workflow for whole runs",
    "rate_limit": "give it to the steps that it limits, or to the workflow for whole runs",
    "circuit_breaker": "give it to the step that makes the call",
    "deadline": "give it to the steps, or to the run: run(…, deadline=60)",
    "delay": "put delay_step(…) before it",
    "scheduled_at": "give it to a step before it, or to the run: run(…, scheduled_at=…)",
    **dict.fromkeys(("fallback", "on_failure"), "give it to the steps within, or handle the failure in on_error"),
    **dict.fromkeys(("idempotency_key", "idempotency_ttl", "idempotency_scope"), _ONE_STEP),
}
#: A flow as a whole.
_OF_FLOW = {"circuit_breaker": "put the call into a workflow of steps, which the flow can ctx.call(…)"}

_ONLY_IN_PLANS = (
    "a limit is an option of the whole flow, as step(flow, {option}=…) in a list of steps, or of a step in "
    "a workflow that the flow can ctx.call(…)"
)
_NO_KEY = (
    "a step of a flow runs once in its run; to share its result with other runs, give the whole flow an "
    "idempotency_key, as step(flow, idempotency_key=…), or ctx.call(…) a workflow whose step has one"
)
_NOT_EXTERNAL = (
    "a flow waits for an external system with ctx.await_event(…); an external step is part of a workflow of steps, "
    "which a flow can ctx.call(…)"
)
#: What no step of a flow can have, and what to write instead.
NOT_IN_FLOWS = {
    **{name: _ONLY_IN_PLANS.format(option=name) for name in ("concurrency_limit", "rate_limit")},
    **dict.fromkeys(("idempotency_key", "idempotency_ttl", "idempotency_scope"), _NO_KEY),
    "circuit_breaker": "a step of a flow has none: put the step into a workflow of steps, which the "
    "flow can ctx.call(…)",
    "compensate": "a flow undoes what it has done by itself: try: … except: ctx.step(undo, …); raise",
    "retry_budget": "the steps of a flow have no retry_budget: give the step max_attempts, or the budget to the flow",
    "on_error": "a flow handles the failure of a step by itself: try: ctx.step(…) except StepFailed: …",
    "deadline": "a step of a flow has no deadline over its attempts: give it a timeout and max_attempts",
    "delay": "a flow waits before a step with ctx.sleep(…)",
    "scheduled_at": "a flow waits for a time with ctx.sleep_until(…)",
    "queue_timeout": "a step of a flow starts at once, in the flow's own process",
    "queue": "a step of a flow runs in the flow's process: give the flow a queue, or ctx.call(…) another workflow",
    "priority": "a step of a flow starts at once: give the flow a priority",
}
_VALUES_NOT_IN_FLOWS = {
    "fallback": "in a flow only value(…) is possible; or catch StepFailed and call ctx.step(…) again",
    "on_failure": "this is an option of the flow as a step, not of its own steps",
    "execution_mode": _NOT_EXTERNAL,
}


def what_it_is(node: Node) -> str:
    return "an external step" if node.target == "external" else f"a {node.kind}"


def misplaced(node: Node, options: Mapping[str, Any]) -> dict[str, str]:
    """The options that the node cannot have, with the reason. Names that no option has are not among them."""
    known = options_for(node.target)
    instead = {**_INSTEAD, **(_OF_FLOW if node.kind == FLOW else {})}
    wrong = (key for key in options if key in FIELDS and key not in known)
    return {key: f"{what_it_is(node)} has no option {key!r}: {instead.get(key, _ONE_STEP)}" for key in wrong}


def not_in_flows(options: Mapping[str, Any]) -> list[str]:
    """The problems of options that a step of a flow is given by `ctx.step` or by a rule. Fields of policies as JSON."""
    instead = {**NOT_IN_FLOWS, **_VALUES_NOT_IN_FLOWS}
    wrong = (key for key, given in options.items() if key in instead and not can_have("flow_step", key, given))
    return [f"option {key}: {instead[key]}" for key in wrong]


def not_of_workflow(option: str) -> str:
    advice = f"{option} is an option of steps, not of a workflow: give it to the steps"
    if option not in options_for("flow"):
        return advice
    return f"{advice}; for a flow as a whole, write @step({option}=…) below @flow(…)"
