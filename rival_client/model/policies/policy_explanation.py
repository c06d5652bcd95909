"""Explains, field by field, where the options of a step come from. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic_core import to_jsonable_python

from rival_client.model.policies.option_fields import FIELDS
from rival_client.model.policies.policy_rules import ATTEMPTS, Because, LayerName, Resolved
from rival_client.model.policies.rulebook import FleetRule
from rival_client.model.policies.step_config import StepConfig


@dataclass(frozen=True)
class ExplainedField:
    """One option. `rule`: the number of the rule in its list, or the id of a rule of the fleet."""

    name: str
    value: Any
    layer: LayerName
    rule: int | None = None
    because: str = "default"


@dataclass(frozen=True)
class PolicyExplanation:
    """The options of a step in one attempt. `attempt` None: those that its next attempt would have."""

    run_id: str
    step: str
    attempt: int | None
    fields: tuple[ExplainedField, ...]

    @property
    def config(self) -> StepConfig:
        return StepConfig(**{one.name: one.value for one in self.fields if one.layer != "default"})


def explained(resolved: Resolved, about: Mapping[int, FleetRule]) -> tuple[ExplainedField, ...]:
    """Every field, those that are not the default first."""
    values = to_jsonable_python(dict(resolved.config))
    found = [_field(name, values[name], resolved.because.get(name), about) for name in FIELDS]
    return tuple(sorted(found, key=lambda one: one.layer == "default"))


def _field(name: str, value: Any, why: Because | None, about: Mapping[int, FleetRule]) -> ExplainedField:
    if why is None:
        return ExplainedField(name, value, "default")
    return ExplainedField(name, value, why.layer, why.rule, _text(why, about))


def _text(why: Because, about: Mapping[int, FleetRule]) -> str:
    if why.layer == "step":
        return "the step's own"
    if why.rule is None:
        return f"the {why.layer}'s own"
    text = f"{why.layer} rule {why.rule}"
    set_by = about.get(why.rule or 0) if why.layer == "fleet" else None
    if set_by is not None:
        facts = [set_by.reason, set_by.author and f"by {set_by.author}"]
        facts.append(f"until {set_by.expires_at:%Y-%m-%d %H:%M %Z}" if set_by.expires_at else None)
        text += "".join(f", {fact}" for fact in facts if fact)
    return text if why.match is None else f"{text}: {why.match}"


def as_recorded(
    base: tuple[ExplainedField, ...], recorded: Mapping[str, Any], about: Mapping[int, FleetRule]
) -> tuple[ExplainedField, ...]:
    """What an attempt had: the options of the workflow, and those that rules of the run or of the fleet changed."""
    changed = recorded.get("fields", {})
    hidden = ATTEMPTS - changed.keys() if changed.keys() & ATTEMPTS else frozenset()
    found = []
    for one in base:
        if one.name in changed:
            was = changed[one.name]
            because = _text(Because(was["layer"], was["rule"]), about)
            found.append(ExplainedField(one.name, was["value"], was["layer"], was["rule"], because))
        elif one.name in hidden:
            found.append(ExplainedField(one.name, FIELDS[one.name].default, "default"))
        else:
            found.append(one)
    return tuple(sorted(found, key=lambda one: one.layer == "default"))
