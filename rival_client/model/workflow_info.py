"""A registered workflow as a plain value: what clients see of the table."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import Any

from rival_client.model.kinds import COMPOSITES


@dataclass(frozen=True)
class WorkflowInfo:
    """A registered workflow, at the version that new runs take."""

    name: str
    version: str
    description: str | None
    input_schema: dict[str, Any] | None
    plan: dict[str, Any]
    registered_at: dt.datetime
    #: The options of its steps, and the rules of its policies.
    policies: dict[str, Any] | None = None
    #: Of its runs: the queue of their start (None: the fleet's own) and their priority (None: normal).
    queue: str | None = None
    priority: str | None = None

    @property
    def step_count(self) -> int:
        """The steps that the plan names, at any depth; those of a loop or for_each count once."""
        return _leaves(self.plan.get("nodes", []))


def _leaves(value: Any) -> int:
    """Nodes that consist of no others, among all that a plan's JSON holds."""
    if isinstance(value, list):
        return sum(_leaves(inner) for inner in value)
    if not isinstance(value, dict) or "name" not in value:
        return 0
    if value.get("type", "step") in COMPOSITES:
        return sum(_leaves(inner) for inner in value.values() if isinstance(inner, list))
    return 1
