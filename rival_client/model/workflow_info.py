"""A registered workflow as a plain value: what clients see of the table, and the names that it has."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rival_client.errors import did_you_mean
from rival_client.model.kinds import COMPOSITES
from rival_client.model.policies.matchers import Matcher


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


def names_in(plan: Any) -> set[str]:
    """The names of all nodes that a plan's JSON holds."""
    inner = plan.values() if isinstance(plan, dict) else plan if isinstance(plan, list) else ()
    own = {str(plan["name"])} if isinstance(plan, dict) and "name" in plan else set()
    return own.union(*map(names_in, inner))


def breakers_in(options: Any) -> set[str]:
    """The names of the circuit breakers that options, or policies as JSON, have."""
    inner = options.values() if isinstance(options, dict) else options if isinstance(options, list) else ()
    its_own = options.get("circuit_breaker") if isinstance(options, dict) else None
    own = {str(its_own["name"])} if isinstance(its_own, dict) and "name" in its_own else set()
    return own.union(*map(breakers_in, inner))


def _leaves(value: Any) -> int:
    """Nodes that consist of no others, among all that a plan's JSON holds."""
    if isinstance(value, list):
        return sum(_leaves(inner) for inner in value)
    if not isinstance(value, dict) or "name" not in value:
        return 0
    if value.get("type", "step") in COMPOSITES:
        return sum(_leaves(inner) for inner in value.values() if isinstance(inner, list))
    return 1


def unmatched(match: Matcher, registered: Sequence[WorkflowInfo]) -> list[str]:
    """What the matcher of a rule names that does not exist now: a workflow may be registered later."""
    parts = (match, *match.all)
    workflows = {one.workflow for one in parts if one.workflow is not None}
    known = {info.name: names_in(info.plan.get("nodes")) for info in registered}
    found = [
        f"no workflow {name!r} is registered{did_you_mean(name, known)}: the rule has no effect until it is"
        for name in sorted(workflows - known.keys())
    ]
    names = {one.name for one in parts if one.name is not None}
    steps = set[str]().union(*(known[name] for name in known if not workflows - {name}))
    if not found:
        found += [
            f"no registered workflow has a step {name!r}{did_you_mean(name, steps)}: the rule has no effect until one "
            "has, or a flow calls such a step"
            for name in sorted(names - steps)
        ]
    return found
