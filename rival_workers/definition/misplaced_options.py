"""Options of steps that another kind of node cannot have, and what to write instead."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rival_client.model.kinds import FLOW
from rival_client.model.policies.matchers import Node
from rival_client.model.policies.option_fields import FIELDS
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


def what_it_is(node: Node) -> str:
    return "an external step" if node.target == "external" else f"a {node.kind}"


def misplaced(node: Node, options: Mapping[str, Any]) -> dict[str, str]:
    """The options that the node cannot have, with the reason. Names that no option has are not among them."""
    known = options_for(node.target)
    instead = {**_INSTEAD, **(_OF_FLOW if node.kind == FLOW else {})}
    wrong = (key for key in options if key in FIELDS and key not in known)
    return {key: f"{what_it_is(node)} has no option {key!r}: {instead.get(key, _ONE_STEP)}" for key in wrong}
