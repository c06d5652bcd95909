"""A plan as the tree that the pages draw: every composite has lanes of nodes; and where a run's steps are in it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from rival_workers.dashboard.veil import Veil
from rival_workers.drawing import differences as differing
from rival_workers.engine.nodes import AnyNode, Body, BranchNode, ForEachNode, LoopNode, WorkflowNode, bodies, repeats
from rival_workers.engine.paths import place_of, role_of
from rival_workers.engine.plan import Plan
from rival_workers.engine.policies import Policies

#: Fields of a node that say what it is; its options are apart.
_ABOUT = (
    *("topic", "key", "where", "seconds", "timeout", "on_timeout", "concurrency", "mode", "max_iterations"),
    *("workflow", "on_failure", "collect", "own_input", "propagate_failure", "code"),
)


Options = Mapping[str, Mapping[str, Any]]


def graph(policies: Policies, veil: Veil) -> dict[str, Any]:
    plan = policies.plan
    return {"nodes": _nodes(plan.nodes, "", policies.shown(), veil), "on_error": plan.on_error}


def _nodes(body: Body, scope: str, options: Options, veil: Veil) -> list[dict[str, Any]]:
    return [_node(node, scope, options, veil) for node in body]


def _node(node: AnyNode, scope: str, options: Options, veil: Veil) -> dict[str, Any]:
    place = scope + node.name
    inner = f"{place}[]/" if repeats(node) else f"{place}/"
    return {
        "name": node.name,
        "type": node.type,
        "place": place,
        "scope": inner,
        "options": veil.within(options.get(place, {})),
        "on_error": node.on_error,
        "compensate": bool(getattr(node, "compensate", False)),
        "external": bool(getattr(node, "external", False)),
        "lanes": [{"name": name, "nodes": _nodes(lane, inner, options, veil)} for name, lane in _lanes(node)],
        "about": veil.within({name: getattr(node, name) for name in _ABOUT if hasattr(node, name)}),
    }


def _lanes(node: AnyNode) -> Iterable[tuple[str, Body]]:
    match node:
        case BranchNode():
            return [("then", node.then), ("otherwise", node.otherwise)]
        case ForEachNode() | LoopNode():
            return [("do", node.do)]
        case WorkflowNode():
            return [("body", node.body)]
        case _:
            return [(body[0].name if body else "", body) for body in bodies(node)]


# -- steps of a run ---------------------------------------------------------------------------------------


def addressed(path: str) -> dict[str, Any]:
    """The place in the plan, and the role of a callback."""
    base, role = role_of(path)
    return {"place": place_of(base), "role": role or None}


def taken(paths: Iterable[str], branch: str, plan: Plan | None) -> str | None:
    """Which side of a branch has rows."""
    place = None if plan is None else plan.places.get(place_of(branch))
    if place is None or not isinstance(place.node, BranchNode):
        return None
    inner, then = branch + "/", {one.name for one in place.node.then}
    names = {path[len(inner) :].partition("/")[0].partition("!")[0] for path in paths if path.startswith(inner)}
    names = {name.partition("[")[0] for name in names}
    if not names:
        return None
    return "then" if names & then else "otherwise"


def plan_difference(before: Policies, after: Policies) -> dict[str, Any]:
    found = differing.differences(before.plan, after.plan, before.shown(), after.shown())
    return {
        "same": not found,
        "added": found.added,
        "removed": found.removed,
        "moved": [{"path": one.path, "before": one.before, "how": one.how} for one in found.moved],
        "changed": [{"path": one.path, "options": one.options} for one in found.changed],
        "changes": differing.lines(found),
    }
