"""Makes the leaves of a plan: the steps and flows in a list of steps. `waits` makes the waits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol, runtime_checkable

from rival_client.model.limits.given_limits import functions_of
from rival_client.model.limits.limit_options import LIMITS
from rival_client.model.policies.matchers import Node
from rival_client.model.policies.policy_rules import overridden
from rival_workers.definition.function_calls import Call
from rival_workers.definition.given_steps import as_spec, checked_injection, is_name, name_of
from rival_workers.definition.problems import Scope
from rival_workers.definition.steps import StepSpec
from rival_workers.definition.waits import Wait, WaitBuilder
from rival_workers.engine.nodes import AnyNode, FlowNode, StepNode
from rival_workers.engine.paths import FALLBACK, KEY


@runtime_checkable
class FlowSpec(Protocol):
    """A flow in a list of steps."""

    function: Callable[..., Any]
    name: str
    version: str | None


def is_leaf(thing: Any) -> bool:
    """Whether a list of steps may contain it: a function, a flow, `step(…)`, a dict or a wait."""
    return callable(thing) or isinstance(thing, StepSpec | Wait | dict)


@dataclass
class LeafBuilder(WaitBuilder):
    def _leaf(self, thing: Any, scope: Scope) -> AnyNode | None:
        if isinstance(thing, Wait):
            return self._wait(thing, scope)
        try:
            spec = as_spec(thing)
        except ValueError as error:
            self._problem(str(error))
            return None
        return (
            self._flow(spec, spec.function, scope) if isinstance(spec.function, FlowSpec) else self._step(spec, scope)
        )

    def _step(self, spec: StepSpec, scope: Scope) -> AnyNode:
        name = spec.options.get("name") or name_of(spec.function)
        found = list(spec.problems)
        place = scope.prefix + str(name)
        node = Node(str(name), "step", place, function=spec.function)
        config = self._options(node, spec.options, found)
        spec = self._with_given(spec, node, "fallback", "idempotency_key", *LIMITS)
        common = self._called(spec, spec.function, name, scope, found)
        if common["fallback"] and place in self.returns:
            self.returns[place + FALLBACK] = self.returns[place]
        return StepNode(external=config.is_external, **common)

    def _flow(self, spec: StepSpec, flow: FlowSpec, scope: Scope) -> AnyNode:
        """Its options apply to each execution of the flow's function; policies apply to the steps that it calls."""
        name = spec.options.get("name") or flow.name
        found = list(spec.problems)
        place = scope.prefix + str(name)
        node = Node(str(name), "flow", place, target="flow", function=flow.function)
        config = self._options(node, spec.options, found)
        if config.fallback is not None and config.fallback.shape != "value":
            found.append(
                "a flow can only fall back to value(…): it handles other failures by itself, with try and except"
            )
        spec = self._with_given(spec, node, "idempotency_key", *LIMITS)
        common = {**self._called(spec, flow.function, name, scope, found)}
        common.pop("fallback")
        if place in self.calls:
            self.calls[place] = replace(self.calls[place], predicates=self.policies.predicates)
        return FlowNode(type="flow", code=flow.version, **common)

    def _with_given(self, spec: StepSpec, node: Node, *names: str) -> StepSpec:
        """Adds the options of these `names` that a rule gives to the node. Rules have no handlers or compensations."""
        tagged = replace(node, tags=tuple(self.tags.get(node.path, ())))
        given = overridden(self.policies.given_for(tagged), spec.options)
        return replace(spec, options={**spec.options, **{name: given.get(name) for name in names}})

    def _called(
        self, spec: StepSpec, function: Callable[..., Any], name: Any, scope: Scope, problems: list[str]
    ) -> dict[str, Any]:
        """The fields of steps and flows: name, function, handler, compensation."""
        called = checked_injection(function, scope.allowed, name, problems)
        reactions = self._reactions(str(name), spec.options, scope, problems)
        if callable(key := spec.options.get("idempotency_key")):
            makes_key = checked_injection(key, scope.allowed, f"{name}'s idempotency_key", problems)
            self.calls |= {} if makes_key is None else {scope.prefix + str(name) + KEY: Call(makes_key)}
        self._limit_keys(scope.prefix + str(name), spec, scope, problems)
        if not is_name(name):
            self.incomplete = True
            problems.append(f"step name {name!r}: use letters, digits, _, - and .; give one with step(…, name=…)")
        for problem in problems:
            self._problem(problem, function)
        if called is not None:
            self._add(scope.prefix + str(name), called)
        return {"name": str(name), **reactions}

    def _limit_keys(self, place: str, spec: StepSpec, scope: Scope, problems: list[str]) -> None:
        """The functions that make the keys of its limits."""
        for limit in (one for option in LIMITS for one in functions_of(spec.options.get(option))):
            role = f"{place}{limit.key}"
            if role in self.calls and self.calls[role].injection.function is not limit.function:
                problems.append("two limits have keys by functions of the same name: give the functions other names")
            makes_key = checked_injection(limit.function, scope.allowed, f"{place}'s limit key", problems)
            self.calls |= {} if makes_key is None else {role: Call(makes_key)}
