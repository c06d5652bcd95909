"""Makes the leaves of a plan: the steps, flows, waits and delays in a list of steps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol, runtime_checkable

from pydantic import ValidationError

from rival_client.errors import InvalidArgument
from rival_client.model.checks import amounts, arguments
from rival_client.model.limits.given_limits import functions_of
from rival_client.model.limits.limit_options import LIMITS
from rival_client.model.policies.matchers import Node
from rival_client.model.policies.policy_rules import overridden
from rival_workers.definition.function_calls import Call
from rival_workers.definition.given_steps import as_spec, checked_injection, is_name, name_of
from rival_workers.definition.inject import Injection
from rival_workers.definition.problems import Collector, Scope
from rival_workers.definition.return_types import returns_of_model
from rival_workers.definition.steps import StepSpec
from rival_workers.definition.waits import WaitSpec, receive
from rival_workers.engine.nodes import AnyNode, FlowNode, SleepNode, StepNode, WaitNode
from rival_workers.engine.paths import FALLBACK, KEY


@runtime_checkable
class FlowSpec(Protocol):
    """A flow in a list of steps."""

    function: Callable[..., Any]
    name: str
    version: str | None


@dataclass(frozen=True)
class Sleep:
    """`delay_step(seconds=20)`."""

    name: str
    seconds: Any
    #: Problems of its arguments.
    problems: tuple[str, ...] = ()


@dataclass
class LeafBuilder(Collector):
    def _leaf(self, thing: Any, scope: Scope) -> AnyNode | None:
        if isinstance(thing, Sleep):
            return self._sleep(thing, scope)
        if isinstance(thing, WaitSpec):
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
        """Its options apply to the function as a whole, from one wait to the next; policies apply to its steps."""
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
        """With the functions that the rule for it has. Those of other reactions are the step's own alone."""
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
            problems.append(f"step name {name!r}: use letters, digits, _ and -; give one with step(…, name=…)")
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

    def _sleep(self, sleep: Sleep, scope: Scope) -> AnyNode | None:
        for problem in sleep.problems:
            self._problem(problem)
        if not is_name(sleep.name):
            self._problem(f"delay name {sleep.name!r}: use letters, digits, _ and -")
        self._add(scope.prefix + sleep.name, Injection(_wake_up, (), ()))
        try:
            return SleepNode(type="sleep", name=sleep.name, seconds=sleep.seconds)
        except ValidationError as error:
            self._invalid(sleep.name, error)
            return None

    def _wait(self, spec: WaitSpec, scope: Scope) -> AnyNode | None:
        if not is_name(spec.name):
            self._problem(f"step name {spec.name!r}: use letters, digits, _ and -; give one with name=…")
            return None
        with self._at(f" {spec.name!r}"):
            common = self._common(spec, scope)
            place = scope.prefix + spec.name
            key = None if callable(spec.key) else spec.key
            self._check_wait(spec)
            if callable(spec.key):
                self._ask(place, "key", spec.key, scope)
            received = receive(spec.topic, spec.timeout, spec.on_timeout)
            self.calls[place] = Call(Injection(received, ("event",), ()))
            if spec.model is not None:
                self.returns[place] = returns_of_model(spec.model)
            try:
                return WaitNode(
                    type="wait_event",
                    topic=spec.topic,
                    key=key,
                    own_key=callable(spec.key),
                    where=None if spec.where is None else dict(spec.where),
                    timeout=spec.timeout,
                    on_timeout=spec.on_timeout,
                    **common,
                )
            except ValidationError as error:
                self._invalid(spec.name, error)
                return None

    def _check_wait(self, spec: WaitSpec) -> None:
        checks: list[tuple[Callable[[str, object], Any], str, Any]] = [
            (arguments.name, "topic", spec.topic),
            (arguments.fields, "where", spec.where),
            (amounts.seconds, "timeout", spec.timeout),
        ]
        if not callable(spec.key):
            checks.append((arguments.name, "key", spec.key))
        for check, option, value in checks:
            try:
                arguments.optional(check, option, value)
            except InvalidArgument as error:
                self._problem(f"option {option} of {spec.name!r}: {error.problem}")


def _wake_up() -> None:
    """The function of a sleep."""
