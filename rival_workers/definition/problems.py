"""Collects, while a list of steps becomes a plan, how to call each function, the types of results, and every problem
with its place. Nothing is raised before the whole list has been read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from pydantic import ValidationError

from rival_client.model.kinds import COMPOSITES
from rival_client.model.policies.matchers import Node
from rival_client.model.policies.option_conflicts import conflicts
from rival_client.model.policies.policy_options import checked_options
from rival_client.model.policies.policy_rules import Layer, Rule, own_layer, resolve
from rival_client.model.policies.step_config import StepConfig
from rival_workers.definition.function_calls import Call
from rival_workers.definition.given_steps import checked_injection, location, options_for
from rival_workers.definition.inject import COMPENSATION_NAMES, HANDLER_NAMES, STEP_NAMES, Injection
from rival_workers.definition.misplaced_options import misplaced
from rival_workers.definition.return_types import returns_of
from rival_workers.definition.returns import Returns
from rival_workers.definition.rules import RuleSet
from rival_workers.engine.paths import COMPENSATION, FALLBACK, HANDLER


@dataclass
class Scope:
    """A body of the plan: the prefix of its places, and the parameters that its functions may have."""

    prefix: str = ""
    allowed: tuple[str, ...] = STEP_NAMES
    names: set[str] = field(default_factory=set)

    @property
    def handlers(self) -> tuple[str, ...]:
        return (*self.allowed, *HANDLER_NAMES[len(STEP_NAMES) :])

    @property
    def compensations(self) -> tuple[str, ...]:
        return (*self.allowed, *COMPENSATION_NAMES[len(STEP_NAMES) :])

    def inner(self, prefix: str, *more: str) -> Scope:
        return Scope(prefix, tuple(dict.fromkeys((*self.allowed, *more))))


class NodeSpec(Protocol):
    """A composite or a wait, not checked yet."""

    @property
    def name(self) -> str: ...
    @property
    def kind(self) -> str: ...
    @property
    def options(self) -> Mapping[str, Any]: ...


@dataclass
class Collector:
    #: The policies of the workflow.
    policies: RuleSet = field(default_factory=RuleSet)
    #: The options that a node was given itself, by place.
    own: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    #: The rules of nested workflows, by place.
    nested_rules: dict[str, Sequence[Rule]] = field(default_factory=dict)
    routes: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    tags: dict[str, Sequence[str]] = field(default_factory=dict)
    #: The hooks of rules, by place.
    hooks: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    calls: dict[str, Call] = field(default_factory=dict)
    #: The types of results, by place, where there are any.
    returns: dict[str, Returns] = field(default_factory=dict)
    #: The values of `fallback=value(…)`, by place.
    fallback_values: dict[str, Any] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    #: Problems of the workflows that this one contains: they name their own files.
    problems_elsewhere: list[str] = field(default_factory=list)
    #: A part of the list has no place in the plan, so that checks of the whole plan are not possible.
    incomplete: bool = False
    _where: str = ""
    _origin: str = ""

    # -- problems -----------------------------------------------------------------------------------------

    @contextmanager
    def _at(self, where: str, origin: str = "") -> Iterator[None]:
        before = self._where, self._origin
        self._where, self._origin = f"{self._where}{where}", origin or self._origin
        try:
            yield
        finally:
            self._where, self._origin = before

    def _problem(self, text: str, of: Any = None) -> None:
        """`of`: the function that has the problem; otherwise the part of the list that is being read has it."""
        at = location(of) or (f" ({self._origin})" if self._origin else "")
        self.problems.append(f"{self._where}: {text}{at}" if self._where else f"{text}{at}")

    def _invalid(self, name: str, error: ValidationError) -> None:
        for one in error.errors():
            self._problem(f"option {'.'.join(map(str, one['loc']))} of {name!r}: {one['msg']}")

    # -- functions ----------------------------------------------------------------------------------------

    def _add(self, place: str, called: Injection) -> None:
        self.calls[place] = Call(called)
        returns = returns_of(called.function)
        if returns is not None:
            self.returns[place] = returns

    def _reactions(self, name: str, options: Mapping[str, Any], scope: Scope, problems: list[str]) -> dict[str, Any]:
        """The handler, the compensation and the fallback of a step."""
        place, found = scope.prefix + name, dict[str, Any]()
        asking = {
            "on_error": (HANDLER, scope.handlers),
            "compensate": (COMPENSATION, scope.compensations),
            "fallback": (FALLBACK, scope.handlers),
        }
        for option, (role, allowed) in asking.items():
            function = options.get(option) if option != "fallback" or callable(options.get(option)) else None
            called = checked_injection(function, allowed, f"{name}'s {option}", problems) if function else None
            if called is not None:
                self.calls[place + role] = Call(called)
            found[option] = called is not None
        return found

    def _common(self, spec: NodeSpec, scope: Scope) -> dict[str, Any]:
        """The fields of all composites and waits: name, options, handler."""
        found: list[str] = []
        options = {key: value for key, value in spec.options.items() if key != "compensate"}
        node = Node(spec.name, spec.kind, scope.prefix + spec.name, target="function")
        self._options(node, options, found)
        if "compensate" in spec.options:
            steps = "the steps within" if spec.kind in COMPOSITES else "the step that does what must be undone"
            found.append(f"a {spec.kind} has no compensation: give compensate to {steps}")
        on_error = spec.options.get("on_error")
        handler = checked_injection(on_error, scope.handlers, "on_error", found) if on_error else None
        for problem in found:
            self._problem(problem)
        if handler is not None:
            self.calls[scope.prefix + spec.name + HANDLER] = Call(handler)
        return {"name": spec.name, "on_error": handler is not None}

    def _options(self, node: Node, options: Mapping[str, Any], problems: list[str]) -> StepConfig:
        """Keeps the options of a node, and checks them together with those of the rule for it."""
        wrong = misplaced(node, options)
        problems += wrong.values()
        own = checked_options(
            {key: value for key, value in options.items() if key not in wrong}, options_for(node.target), problems
        )
        if own.get("execution_mode") == "external" and node.target != "step":
            problems.append(f'option execution_mode: a {node.kind} cannot be external: give "inline" or "durable"')
        node = replace(node, tags=self._tags(node, options.get("tags", ()), problems))
        layers = (own_layer(own), Layer("workflow", self.policies.rules))
        if node.target == "step" and resolve(node, layers).config.is_external:
            node = replace(node, target="external")
            problems += misplaced(node, own).values()
        problems += self.policies.misplaced(node)
        if own:
            self.own[node.path] = own
        if node.tags:
            self.tags[node.path] = node.tags
        if hooks := self.policies.hooks_for(node):
            self.hooks[node.path] = hooks
        config = resolve(node, layers).config
        problems += conflicts(config)
        if config.fallback is not None and config.fallback.shape == "value":
            self.fallback_values[node.path] = config.fallback.value
        return config

    def _tags(self, node: Node, given: Any, problems: list[str]) -> tuple[str, ...]:
        if not isinstance(given, str | list | tuple | set | frozenset):
            problems.append(f"option tags: give a text or a list of texts, not {given!r}")
            return ()
        tags = (given,) if isinstance(given, str) else tuple(given)
        problems += [f"option tags: give texts, not {one!r}" for one in tags if not isinstance(one, str) or not one]
        try:
            return tags + self.policies.tags(replace(node, tags=tags))
        except ValueError as error:
            problems.append(str(error))
            return tags

    def _ask(self, place: str, role: str, function: Any, scope: Scope) -> None:
        """The function of a composite (`when`, `items`, …) is called as a step is."""
        found: list[str] = []
        called = checked_injection(function, scope.allowed, role, found, may_yield=role == "items")
        for problem in found:
            self._problem(problem, function)
        if called is not None:
            self.calls[f"{place}!{role}"] = Call(called)
