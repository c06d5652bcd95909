"""Resolves the options of a step from layers of rules. Pure: no store, no clock.

Layers are laid over one another field by field: rules of the fleet over rules of the run over the step's own options
over rules of the workflow over the defaults. Within a layer, the first rule that matches applies.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from rival_client.model.policies.matchers import Matcher, Node, default, load_matcher
from rival_client.model.policies.option_fields import can_have
from rival_client.model.policies.step_config import StepConfig

LayerName = Literal["fleet", "run", "step", "workflow", "default"]
#: Two options for one thing: a layer that has one of them hides both in the layers below.
ATTEMPTS = frozenset({"max_attempts", "max_retries"})
DEFAULTS = StepConfig()


@dataclass(frozen=True)
class Rule:
    """Options for the steps that a matcher chooses. The options are checked, and are JSON."""

    match: Matcher
    options: Mapping[str, Any]
    #: Of a rule of the fleet.
    id: int | None = None

    def dump(self) -> dict[str, Any]:
        return {"match": self.match.dump(), "options": dict(self.options)}


def load_rule(data: Mapping[str, Any]) -> Rule:
    return Rule(load_matcher(data["match"]), data["options"])


@dataclass(frozen=True)
class Layer:
    name: LayerName
    rules: Sequence[Rule] = ()

    def first_match(self, node: Node) -> tuple[int, Rule] | None:
        numbered = enumerate(self.rules, 1)
        return next(((n, rule) for n, rule in numbered if self.name == "step" or rule.match.matches(node)), None)


@dataclass(frozen=True)
class Because:
    """Where the value of a field comes from: the layer, and the number of the rule in it, or the id of a fleet rule.
    No number: an option of the step, or of the workflow, itself."""

    layer: LayerName
    rule: int | None = None
    match: Matcher | None = None


@dataclass(frozen=True)
class Resolved:
    config: StepConfig
    #: Of each field that is not the default.
    because: Mapping[str, Because] = field(default_factory=dict)


def own_layer(options: Mapping[str, Any]) -> Layer:
    return Layer("step", (Rule(default, options),) if options else ())


def resolve(node: Node, layers: Sequence[Layer], defaults: StepConfig = DEFAULTS) -> Resolved:
    """`layers`: the one that overrides the others first. What the node cannot have is left out."""
    values: dict[str, Any] = {}
    because: dict[str, Because] = {}
    for layer in layers:
        found = layer.first_match(node)
        if found is None:
            continue
        number, rule = found
        why = _because(layer, number, rule)
        options = _not_hidden(rule.options, by=values)
        new = {key: value for key, value in options.items() if can_have(node.target, key, value)}
        values |= new
        because |= dict.fromkeys(new, why)
    config = StepConfig(**{**defaults.model_dump(exclude_unset=True), **values}) if values else defaults
    return Resolved(config, because)


def _not_hidden(options: Mapping[str, Any], by: Mapping[str, Any]) -> dict[str, Any]:
    hidden = ATTEMPTS if by.keys() & ATTEMPTS else frozenset()
    return {key: value for key, value in options.items() if key not in by and key not in hidden}


def _because(layer: Layer, number: int, rule: Rule) -> Because:
    if layer.name == "step":
        return Because("step")
    return Because(layer.name, number if rule.id is None else rule.id, rule.match)


def overridden(options: Mapping[str, Any], by: Mapping[str, Any]) -> dict[str, Any]:
    """Both, where `by` has precedence: field by field, with `max_attempts` and `max_retries` as one field."""
    return {**_not_hidden(options, by), **by}
