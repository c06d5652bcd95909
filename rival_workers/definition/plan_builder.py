"""Makes the bodies of a plan from lists of steps: the order of the nodes, and the composites."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pydantic import ValidationError

from rival_workers.definition.composite_specs import (
    BranchSpec,
    CompositeSpec,
    ForEachSpec,
    LoopSpec,
    ParallelSpec,
    WorkflowSpec,
)
from rival_workers.definition.composites import DEFAULT_ITERATIONS, workflow
from rival_workers.definition.function_calls import Assembled, Resolve
from rival_workers.definition.given_steps import is_name
from rival_workers.definition.inject import IN_ITEM, IN_LOOP
from rival_workers.definition.leaf_nodes import LeafBuilder
from rival_workers.definition.problems import Scope
from rival_workers.definition.returns import NestedInput
from rival_workers.engine.nodes import AnyNode, Body, BranchNode, ForEachNode, LoopNode, ParallelNode, WorkflowNode
from rival_workers.engine.paths import HANDLER
from rival_workers.engine.policies import PolicyDocument
from rival_workers.errors import DefinitionError


@dataclass
class PlanBuilder(LeafBuilder):
    resolve: Resolve = field(kw_only=True)

    @property
    def document(self) -> PolicyDocument:
        rules = {"": self.policies.rules, **self.nested_rules}
        found = {place: its_rules for place, its_rules in rules.items() if its_rules}
        return PolicyDocument(self.own, found, self.tags, self.routes)

    # -- bodies -------------------------------------------------------------------------------------------

    def body(self, things: Any, scope: Scope, where: str) -> Body:
        if not isinstance(things, Sequence) or isinstance(things, str):
            things = [things]
        nodes: list[AnyNode] = []
        for index, thing in enumerate(things):
            with self._at(f"{where}[{index}]"):
                node = self._node(thing, scope)
                if node is not None:
                    self._unique(node.name, scope, thing)
                    nodes.append(node)
        self.incomplete |= len(nodes) < len(things)
        return tuple(nodes)

    def _filled(self, things: Any, scope: Scope, where: str) -> Body:
        if isinstance(things, Sequence) and not things:
            self._problem(f"{where.removeprefix('.')} is empty: give at least one step")
        return self.body(things, scope, where)

    def _unique(self, name: str, scope: Scope, thing: Any) -> None:
        if name in scope.names:
            function = getattr(thing, "function", thing)
            self._problem(f"step {name!r} appears twice: give one of them another name, step(…, name=…)", function)
        scope.names.add(name)

    def _node(self, thing: Any, scope: Scope) -> AnyNode | None:
        if hasattr(thing, "build") or hasattr(thing, "calls"):
            # A workflow itself, without workflow(…).
            thing = workflow(thing)
        return self._composite(thing, scope) if isinstance(thing, CompositeSpec) else self._leaf(thing, scope)

    # -- composites ---------------------------------------------------------------------------------------

    def _composite(self, spec: CompositeSpec, scope: Scope) -> AnyNode | None:
        if isinstance(spec, WorkflowSpec):
            return self._workflow(spec, scope)
        with self._at(f" {spec.name!r}", spec.origin):
            if not is_name(spec.name.removesuffix("?") if isinstance(spec.name, str) else spec.name):
                self._problem(f"name {spec.name!r}: use letters, digits, _, - and ., and a ? at the end if you like")
                return None
            common = self._common(spec, scope)
            try:
                return self._made(spec, scope, common)
            except ValidationError as error:
                self._invalid(spec.name, error)
                return None

    def _made(self, spec: CompositeSpec, scope: Scope, common: dict[str, Any]) -> AnyNode | None:
        path = scope.prefix + spec.name
        match spec:
            case BranchSpec():
                self._ask(path, "when", spec.when, scope)
                inner = scope.inner(f"{path}/")
                then = self._filled(spec.then, inner, ".then")
                return BranchNode(
                    type="branch", then=then, otherwise=self.body(spec.otherwise, inner, ".otherwise"), **common
                )
            case ParallelSpec():
                return self._parallel(spec, scope.inner(f"{path}/"), common)
            case ForEachSpec():
                self._ask(path, "items", spec.items, scope)
                do = self._filled(spec.do, scope.inner(f"{path}[]/", *IN_ITEM), ".do")
                return ForEachNode(
                    type="for_each",
                    do=do,
                    concurrency=spec.concurrency,
                    on_failure=spec.on_failure,
                    collect=spec.collect,
                    **common,
                )
            case LoopSpec():
                return self._loop(spec, path, scope, common)
        raise AssertionError(f"{spec!r} is not a composite")

    def _parallel(self, spec: ParallelSpec, inner: Scope, common: dict[str, Any]) -> AnyNode:
        if not spec.branches:
            self._problem("has no steps: give at least one")
        bodies = tuple(self._filled(branch, inner, f"[{n}]") for n, branch in enumerate(spec.branches))
        return ParallelNode(type="parallel", branches=bodies, on_failure=spec.on_failure, **common)

    def _loop(self, spec: LoopSpec, path: str, scope: Scope, common: dict[str, Any]) -> AnyNode:
        inner = scope.inner(f"{path}[]/", *IN_LOOP)
        if spec.until is not None and spec.while_ is not None:
            self._problem("has both until and while_: give one")
        if spec.until is None and spec.while_ is None and spec.max_iterations is None:
            self._problem("has no end: give until=…, while_=… or max_iterations=…")
        mode = "until" if spec.until else "while" if spec.while_ else "count"
        if mode != "count":
            self._ask(f"{path}[]", mode, spec.until or spec.while_, inner)
        most = DEFAULT_ITERATIONS if spec.max_iterations is None else spec.max_iterations
        do = self._filled(spec.do, inner, ".do")
        return LoopNode(type="loop", do=do, mode=mode, max_iterations=most, **common)  # type: ignore[arg-type]

    def _workflow(self, spec: WorkflowSpec, scope: Scope) -> AnyNode | None:
        nested = self._resolved(spec)
        if nested is None:
            return None
        spec = replace(spec, name=spec.name or nested.name)
        path = scope.prefix + spec.name
        with self._at(f" {spec.name!r}", spec.origin):
            common = self._common(spec, scope)
            if spec.input is not None:
                self._ask(path, "input", spec.input, scope)
                if nested.input_schema is not None:
                    self.returns[f"{path}!input"] = NestedInput(nested.name, nested.input_schema)
            if nested.on_error is not None and common["on_error"]:
                self._problem(f"workflow {spec.name!r} has an on_error of its own: give it none here")
        common["on_error"] |= nested.on_error is not None
        for place, call in nested.calls.items():
            # A nested workflow with an input of its own does not read that of the workflow around it.
            reader = call.read_input or (_as_it_is if spec.input is not None else None)
            self.calls[_placed(path, place)] = replace(call, read_input=reader)
        self.returns |= {_placed(path, place): returns for place, returns in nested.returns.items()}
        self.hooks |= {f"{path}/{place}": hooks for place, hooks in nested.rule_hooks.items()}
        inner = nested.document
        self.own |= {f"{path}/{place}": options for place, options in inner.own.items()}
        self.tags |= {f"{path}/{place}": tags for place, tags in inner.tags.items()}
        self.nested_rules |= {f"{path}/{place}" if place else path: rules for place, rules in inner.rules.items()}
        self.routes |= {f"{path}/{place}" if place else path: route for place, route in inner.routes.items()}
        return WorkflowNode(
            type="workflow",
            workflow=nested.name,
            body=nested.body,
            own_input=spec.input is not None,
            propagate_failure=spec.propagate_failure,
            **common,
        )

    def _resolved(self, spec: WorkflowSpec) -> Assembled | None:
        try:
            return self.resolve(spec.reference)
        except DefinitionError as error:
            self.problems_elsewhere += error.problems
        except ValueError as error:
            with self._at("", spec.origin):
                self._problem(str(error))
        return None


def _placed(path: str, place: str) -> str:
    """The place of a nested workflow's step in the outer plan; its handler is that of the workflow's node."""
    return path + place if place == HANDLER else f"{path}/{place}"


def _as_it_is(value: Any) -> Any:
    return value
