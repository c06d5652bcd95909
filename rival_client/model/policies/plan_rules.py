"""Rules and the plan of a stored workflow: names that it does not have, and options that its nodes cannot have. Pure.

A rule names steps by patterns, kinds and tags, and has options for all of them. What a node cannot have is left out
when its options are resolved, so it is refused, or reported, before.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from rival_client.errors import did_you_mean
from rival_client.model.checks.argument_errors import shown
from rival_client.model.kinds import EXTERNAL, FLOW, FOR_EACH, LOOP, SLEEP, STEP, WORKFLOW
from rival_client.model.policies.matchers import KINDS, Matcher, Node
from rival_client.model.policies.option_fields import can_have, fields_of
from rival_client.model.policies.policy_rules import Rule
from rival_client.model.policies.step_config import Target
from rival_client.model.workflow_info import WorkflowInfo

#: Names of steps that an error lists.
_LISTED = 20
#: What the nodes of a kind can be; all others are functions of composites and waits.
_TARGETS: dict[str, tuple[Target, ...]] = {STEP: ("step", "external", "flow_step"), FLOW: ("flow",)}


def nodes_of(info: WorkflowInfo) -> list[Node]:
    """The nodes of a workflow that rules can match."""
    tags = (info.policies or {}).get("tags", {})
    found = _nodes(info.plan.get("nodes", ()), Node("", "", "", info.name))
    return [replace(node, tags=tuple(tags.get(node.path, ()))) for node in found]


def _nodes(nodes: Sequence[Mapping[str, Any]], around: Node) -> Iterator[Node]:
    """`around`: its path is the prefix of theirs."""
    for node in nodes:
        kind, path = node.get("type", STEP), around.path + node["name"]
        found = replace(around, name=node["name"], kind=kind, path=path, target=_target(kind, node))
        yield found
        nested = (str(node["workflow"]), *around.nested_in) if kind == WORKFLOW else around.nested_in
        inner = replace(around, path=f"{path}[]/" if kind in (FOR_EACH, LOOP) else f"{path}/", nested_in=nested)
        for body in (*(node.get(key, ()) for key in ("then", "otherwise", "do", "body")), *node.get("branches", ())):
            yield from _nodes(body, inner)


def _target(kind: str, node: Mapping[str, Any]) -> Target:
    if kind == STEP:
        return EXTERNAL if node.get("external") else STEP
    return FLOW if kind == FLOW else "function"


# -- names --------------------------------------------------------------------------------------------------


def unknown_steps(rules: Sequence[Rule], nodes: Sequence[Node], workflow: str) -> list[str]:
    """Rules that name a step, or its path, that the plan does not have.

    A pattern may match nothing, and so may a rule for another workflow: a list of rules can be shared by workflows. The
    steps of a flow are known only when it runs: in a workflow with a flow every name is accepted.
    """
    if any(one.kind == FLOW for one in nodes):
        return []
    workflows = {workflow}.union(*(one.nested_in for one in nodes))
    found = []
    for number, rule in enumerate(rules):
        for match in _conditions(rule.match):
            if match.workflow is not None and match.workflow not in workflows:
                break
            found += [f"policies[{number}]: {problem}" for problem in _unknown(match, workflow, nodes)]
    return found


def _conditions(match: Matcher) -> Iterator[Matcher]:
    """Conditions with a workflow come first: they decide whether the others can apply."""
    inner = [match, *(deeper for one in match.all for deeper in _conditions(one))]
    yield from sorted(inner, key=lambda one: one.workflow is None)


def _unknown(match: Matcher, workflow: str, nodes: Sequence[Node]) -> Iterator[str]:
    for what, given, known in (
        ("step", match.name, {one.name for one in nodes}),
        ("path", match.path, {one.path for one in nodes}),
    ):
        if given is not None and given not in known and "*" not in given:
            listed = ", ".join(sorted(known)[:_LISTED]) + (" and others" if len(known) > _LISTED else "")
            hint = did_you_mean(given, known)
            yield f"workflow {workflow!r} has no {what} {shown(given)}{hint}; it has {listed}"


# -- options ------------------------------------------------------------------------------------------------


def not_of_kinds(rule: Rule) -> list[str]:
    """Options of a rule that one of the kinds cannot have that its matcher names."""
    named = [set(one.kind) for one in _conditions(rule.match) if one.kind]
    kinds = [kind for kind in KINDS if named and all(kind in one for one in named)]
    found = {key: [kind for kind in kinds if not _kind_can_have(kind, key, rule)] for key in rule.options}
    return [f"option {key!r}: nodes of kind {', '.join(wrong)} cannot have it" for key, wrong in found.items() if wrong]


def _kind_can_have(kind: str, key: str, rule: Rule) -> bool:
    return any(can_have(target, key, rule.options[key]) for target in _TARGETS.get(kind, ("function",)))


def misplaced_options(rules: Sequence[Rule], nodes: Sequence[Node], workflow: str) -> list[str]:
    """Options of the rules of a run that nodes cannot have that they are for."""
    step = Node("", STEP, "", workflow, target="flow_step")
    has_flow = any(node.kind == FLOW for node in nodes)
    found: dict[str, None] = {}
    for number, rule in enumerate(rules):
        matched = [node for node in nodes if rule.match.matches(node)]
        first = [node for node in matched if not any(one.match.matches(node) for one in rules[:number])]
        if has_flow and not matched and may_match_in_flows(rule.match, workflow):
            first = [step]
        wrong = (one for node in first if node.kind != SLEEP for one in _misplaced(rule, node))
        found |= dict.fromkeys(f"policies[{number}]: {one}: choose other steps with a matcher" for one in wrong)
    return list(found)


def may_match_in_flows(match: Matcher, workflow: str) -> bool:
    """Whether it can match steps that flows of this workflow call."""
    is_possible = match.workflow in (None, workflow) and (not match.kind or STEP in match.kind)
    return is_possible and all(may_match_in_flows(one, workflow) for one in match.all)


def _misplaced(rule: Rule, node: Node) -> Iterator[str]:
    for key, value in rule.options.items():
        # The mode of an external step is its own.
        if can_have(node.target, key, value) or (key, node.target) == ("execution_mode", EXTERNAL):
            continue
        if key in fields_of(node.target):
            yield f"{_what_it_is(node)} cannot have this {key!r}"
        else:
            yield f"{_what_it_is(node)} has no option {key!r}"


def _what_it_is(node: Node) -> str:
    return {"external": "an external step", "flow_step": "a step of a flow"}.get(node.target, f"a {node.kind}")


def without_effect(rule: Rule, registered: Sequence[WorkflowInfo]) -> list[str]:
    """Options of a rule of the fleet that registered nodes cannot have that it matches."""
    match = replace(rule.match, labels={})
    matched = (node for info in registered for node in nodes_of(info) if node.kind != SLEEP and match.matches(node))
    found = {one for node in matched for one in _misplaced(rule, node)}
    return [f"{one}: the rule does not change it there" for one in sorted(found)]
