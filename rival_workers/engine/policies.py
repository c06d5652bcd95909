"""The options of a workflow's steps: a document beside the plan, and the options at a path that follow from it. Pure.

Options are not part of the version: another timeout applies to the runs in flight, too. The document is stored with the
workflow, so that keepers can decide without the code.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from pydantic_core import to_jsonable_python

from rival_client.model.limits.singletons import rules_of
from rival_client.model.payload import serialise
from rival_client.model.policies.matchers import Node
from rival_client.model.policies.policy_rules import DEFAULTS, Because, Layer, Resolved, Rule, own_layer, resolve
from rival_client.model.policies.rulebook import NO_RULES, Rulebook
from rival_client.model.policies.run_policies import NOT_IN_RULES, RunPolicies, load_run_policies
from rival_client.model.policies.step_config import StepConfig, Target
from rival_workers.engine import paths
from rival_workers.engine.effects import Advance
from rival_workers.engine.nodes import FlowNode, SleepNode, StepNode, WaitNode, WorkflowNode
from rival_workers.engine.plan import Place, Plan
from rival_workers.engine.policy_document import NO_POLICIES as NO_POLICIES
from rival_workers.engine.policy_document import Options, load_document, separated
from rival_workers.engine.policy_document import PolicyDocument as PolicyDocument

#: A handler has no retries and no timeout of its own.
HANDLER_CONFIG = StepConfig(max_attempts=1)
_EXTERNAL = StepConfig(execution_mode="external")

#: Combinations of rules of runs and of the fleet that one workflow keeps, and names of steps of flows: code can make
#: new ones without end.
_KEPT = 1000


def load_policies(workflow: str, plan: Mapping[str, Any], policies: Mapping[str, Any] | None) -> Policies:
    """A workflow as stored. Plans that earlier versions stored have the options of each node within."""
    structure, options = separated(plan)
    document = PolicyDocument(own=options) if policies is None else load_document(policies)
    return Policies(workflow, Plan.load(structure), document)


class Policies:
    """The options at each path of one version of a workflow."""

    def __init__(
        self,
        workflow: str,
        plan: Plan,
        document: PolicyDocument | None = None,
        run: RunPolicies | None = None,
        book: Rulebook = NO_RULES,
        labels: Mapping[str, str] | None = None,
    ) -> None:
        """`run`, `book`: rules of the run and of the fleet; `labels`: of the run, for their matchers."""
        self.workflow, self.plan = workflow, plan
        self.document = document or NO_POLICIES
        self.run, self.book, self.labels = run, book, labels or {}
        #: By place: a for_each has many paths, and one place.
        self._resolved: dict[str, Resolved] = {}
        self._recorded: dict[str, str | None] = {}
        self._over: dict[Any, Policies] = {}
        #: What follows from the success of a plain step, by path.
        self.advances: dict[str, Advance] = {}
        #: Steps of flows that have no options of their own.
        self._plain_steps: dict[tuple[str, str], Resolved] = {}
        #: These options without the rules of the fleet, and the rules of the run as stored.
        self.base: Policies = self
        self.given: Mapping[str, Any] | None = None

    def over(self, run: Mapping[str, Any] | None, book: Rulebook, labels: Mapping[str, str] | None) -> Policies:
        """With the rules of a run, as stored, and of the fleet. Kept, so that most attempts look it up."""
        run = rules_of(run)
        if run is None and not book.rules:
            return self
        labels = labels if book.asks_for_labels or run is not None else None
        key = (book.version, None if run is None else serialise(run), None if labels is None else serialise(labels))
        found = self._over.get(key)
        if found is None:
            if len(self._over) >= _KEPT:
                self._over.clear()
            rules = None if run is None else load_run_policies(run)
            found = self._over[key] = Policies(self.workflow, self.plan, self.document, rules, book, labels)
            found.base, found.given = self, run
        return found

    def under(self, book: Rulebook, labels: Mapping[str, str] | None) -> Policies:
        """The same run with the rules that the fleet has now. `labels`: of the run; `self` does not have them
        if no rule needed them so far."""
        return self if book.version == self.book.version else self.base.over(self.given, book, labels)

    def recorded(self, path: str) -> str | None:
        """What rules of the run and of the fleet have changed at this path, as JSON; None: nothing. Kept, so that most
        attempts look it up."""
        if self.run is None and not self.book.rules:
            return None
        place = paths.place_of(path)
        if place not in self._recorded:
            self._recorded[place] = self._changed_by_rules(place)
        return self._recorded[place]

    def _changed_by_rules(self, place: str) -> str | None:
        resolved = self.resolved(place)
        changed = {
            name: {"value": getattr(resolved.config, name), "layer": why.layer, "rule": why.rule}
            for name, why in resolved.because.items()
            if why.layer in ("fleet", "run")
        }
        if not changed and (self.run is None or self.run.mode == "merge"):
            return None
        facts: dict[str, Any] = {"fields": to_jsonable_python(changed)}
        if self.book.rules:
            facts["rulebook"] = self.book.version
        return serialise(facts | ({"mode": "replace"} if self.run is not None and self.run.mode == "replace" else {}))

    def at(self, path: str) -> StepConfig:
        """The options of the step at this path; of a function of a composite, those of the composite."""
        found = self._resolved.get(path)
        return self.resolved(path).config if found is None else found.config

    def resolved(self, path: str) -> Resolved:
        found = self._resolved.get(path)
        if found is None:
            place = paths.place_of(path)
            found = self._resolved.get(place)
            if found is None:
                found = self._resolved[place] = self._resolve(place)
        return found

    def _resolve(self, place: str) -> Resolved:
        base, role = paths.role_of(place)
        if not base:
            return _with_route(Resolved(HANDLER_CONFIG), self._route_of(""))
        found = self.plan.place(base)
        resolved = self.of_node(found)
        if isinstance(found.node, SleepNode) and not role:
            return _with_route(Resolved(DEFAULTS), self._route(found))
        if role == "on_error" or (isinstance(found.node, WaitNode) and not role):
            # A wait that has ended has no options, except its route: those are of the function that makes its key.
            return Resolved(HANDLER_CONFIG.routed_as(resolved.config), resolved.because)
        match role:
            case "compensate":
                return Resolved(resolved.config.of_compensation, resolved.because)
            case "fallback":
                return Resolved(resolved.config.of_fallback, resolved.because)
        return resolved

    def node(self, place: Place) -> Node:
        around = tuple(one.node.workflow for one in place.lineage() if isinstance(one.node, WorkflowNode))
        node = place.node
        tags = tuple(self.document.tags.get(place.path, ()))
        target = _target(place)
        return Node(node.name, node.type, place.path, self.workflow, around, tags, target, self.labels)

    def of_node(self, place: Place) -> Resolved:
        """The options of a node as such; of a composite and a wait, those of its functions."""
        return _with_route(resolve(self.node(place), self.layers(place), _defaults(place)), self._route(place))

    def shown(self) -> dict[str, dict[str, Any]]:
        """The options of each node that are not the defaults, by place."""
        found = {path: self.of_node(place).config for path, place in self.plan.places.items()}
        return {path: config.model_dump(mode="json", exclude_defaults=True) for path, config in found.items()}

    def layers(self, place: Place) -> tuple[Layer, ...]:
        return self._layers(self.document.own.get(place.path, {}), place)

    def _layers(self, own: Options, place: Place) -> tuple[Layer, ...]:
        given = Layer("fleet", self.book.rules), Layer("run", () if self.run is None else self.run.rules)
        rules = self._rules(place)
        if self.run is not None and self.run.mode == "replace":
            own, rules = _shared(own), [replace(one, options=_shared(one.options)) for one in rules]
        return *given, own_layer(own), Layer("workflow", rules)

    def _rules(self, place: Place) -> Sequence[Rule]:
        """The rules of the workflow that contains the node."""
        return self.document.rules.get(next(_workflows_around(place)), ())

    def is_own(self, place: Place) -> bool:
        """The node is one of the workflow itself, not of a nested one."""
        return next(_workflows_around(place)) == ""

    def _route(self, place: Place) -> Options:
        """Queue and priority of the workflow that has the node, or of one around that."""
        around = [self._route_of(one) for one in _workflows_around(place)] if self.document.routes else []
        return {name: value for route in reversed(around) for name, value in route.items()}

    def _route_of(self, scope: str) -> Options:
        """The priority of the whole workflow is that of its runs, which a start can change."""
        route = self.document.routes.get(scope, {})
        return route if scope else {name: value for name, value in route.items() if name != "priority"}

    def in_flow(self, path: str) -> Resolved | None:
        """The options of a checkpoint of a flow, without those that only the flow's code knows. None: it is none."""
        parts = path.split("/")
        for count in range(1, len(parts)):
            place = self.plan.places.get(paths.place_of("/".join(parts[:count])))
            if place is not None and isinstance(place.node, FlowNode):
                return self.of_flow_step(place.path, "/".join(parts[count:]).partition("#")[0], {})
        return None

    # -- steps of flows -----------------------------------------------------------------------------------

    def of_flow_step(self, flow: str, name: str, own: Options, tags: Sequence[str] = ()) -> Resolved:
        """A step that the flow at this path calls: its own options, over the rules for the flow's workflow."""
        if own or tags:
            return self._of_flow_step(flow, name, own, tags)
        key = (paths.place_of(flow), name)
        found = self._plain_steps.get(key)
        if found is None:
            if len(self._plain_steps) >= _KEPT:
                self._plain_steps.clear()
            found = self._plain_steps[key] = self._of_flow_step(flow, name, own, tags)
        return found

    def _of_flow_step(self, flow: str, name: str, own: Options, tags: Sequence[str]) -> Resolved:
        place = self.plan.place(flow)
        around = self.node(place)
        path, target = f"{place.path}/{name}", "flow_step"
        node = Node(name, "step", path, self.workflow, around.nested_in, tuple(tags), target, self.labels)  # type: ignore[arg-type]
        return resolve(node, self._layers(own, place))


def _workflows_around(place: Place) -> Iterator[str]:
    """The places of the nested workflows that have the node, the innermost first, and that of the whole one."""
    yield from (one.path for one in place.lineage() if isinstance(one.node, WorkflowNode))
    yield ""


def _shared(options: Options) -> Options:
    """The limits, which hold for all runs: the rules of one run do not replace them."""
    return {name: value for name, value in options.items() if name in NOT_IN_RULES}


def _with_route(resolved: Resolved, route: Options) -> Resolved:
    """With the queue and the priority of the workflow, where nothing else says so."""
    missing = {name: value for name, value in route.items() if name not in resolved.because}
    if not missing:
        return resolved
    because = {**resolved.because, **dict.fromkeys(missing, Because("workflow"))}
    return Resolved(resolved.config.model_copy(update=missing), because)


def _target(place: Place) -> Target:
    match place.node:
        case StepNode():
            return "external" if place.node.external else "step"
        case FlowNode():
            return "flow"
    return "function"


def _defaults(place: Place) -> StepConfig:
    return _EXTERNAL if isinstance(place.node, StepNode) and place.node.external else DEFAULTS
