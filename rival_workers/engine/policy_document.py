"""The options of steps in the definition of a workflow, as stored beside the plan. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from rival_client.model.kinds import FOR_EACH, LOOP
from rival_client.model.policies.policy_rules import DEFAULTS, Rule, load_rule

Options = Mapping[str, Any]
OnCancel = Literal["compensate", "hooks"]


@dataclass(frozen=True)
class PolicyDocument:
    """What the definition of a workflow says about the options of its steps."""

    #: The options that were given to the node at a place itself.
    own: Mapping[str, Options] = field(default_factory=dict)
    #: The rules of the workflow (""), and those of nested workflows by their places.
    rules: Mapping[str, Sequence[Rule]] = field(default_factory=dict)
    #: The tags of the node at a place, and the names of the predicates that are true for it.
    tags: Mapping[str, Sequence[str]] = field(default_factory=dict)
    #: Queue and priority of all steps of the workflow (""), and of nested workflows by their places.
    routes: Mapping[str, Options] = field(default_factory=dict)
    #: Workers end a run that is cancelled: they undo its steps, or only call its hooks. None: the cancel ends it.
    on_cancel: OnCancel | None = None

    def dump(self) -> dict[str, Any]:
        rules = {scope: [rule.dump() for rule in rules] for scope, rules in self.rules.items()}
        parts: dict[str, Any] = {"own": self.own, "rules": rules, "tags": self.tags, "routes": self.routes}
        found: dict[str, Any] = {name: dict(part) for name, part in parts.items() if part}
        return found | ({} if self.on_cancel is None else {"on_cancel": self.on_cancel})


NO_POLICIES = PolicyDocument()


def load_document(data: Mapping[str, Any] | None) -> PolicyDocument:
    if not data:
        return PolicyDocument()
    rules = {scope: tuple(load_rule(one) for one in rules) for scope, rules in data.get("rules", {}).items()}
    return PolicyDocument(
        data.get("own", {}), rules, data.get("tags", {}), data.get("routes", {}), data.get("on_cancel")
    )


def separated(plan: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Options]]:
    """A stored plan without options, and the options by place."""
    options: dict[str, Options] = {}

    def body(nodes: Sequence[Mapping[str, Any]], scope: str) -> list[dict[str, Any]]:
        return [node(one, scope) for one in nodes]

    def node(one: Mapping[str, Any], scope: str) -> dict[str, Any]:
        found, path = dict(one), scope + one["name"]
        own = found.pop("config", None)
        if own is not None:
            options[path] = {key: value for key, value in own.items() if value != getattr(DEFAULTS, key, None)}
            if own.get("execution_mode") == "external":
                found["external"] = True
        inner = f"{path}[]/" if one.get("type") in (FOR_EACH, LOOP) else f"{path}/"
        found |= {key: body(found[key], inner) for key in ("then", "otherwise", "do", "body") if key in found}
        if "branches" in found:
            found["branches"] = [body(lane, inner) for lane in found["branches"]]
        return found

    return {**plan, "nodes": body(plan["nodes"], "")}, {path: own for path, own in options.items() if own}
