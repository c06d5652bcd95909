"""A plan as the tree that the pages draw: every composite has lanes of nodes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from rival_workers.engine.nodes import AnyNode, Body, BranchNode, ForEachNode, LoopNode, WorkflowNode, bodies, repeats
from rival_workers.engine.policies import Policies

#: Fields of a node that say what it is; its options are apart.
_ABOUT = (
    *("topic", "key", "where", "seconds", "timeout", "on_timeout", "concurrency", "mode", "max_iterations"),
    *("workflow", "on_failure", "collect", "own_input", "propagate_failure", "code"),
)


Options = Mapping[str, Mapping[str, Any]]


def graph(policies: Policies) -> dict[str, Any]:
    plan = policies.plan
    return {"nodes": _nodes(plan.nodes, "", policies.shown()), "on_error": plan.on_error}


def _nodes(body: Body, scope: str, options: Options) -> list[dict[str, Any]]:
    return [_node(node, scope, options) for node in body]


def _node(node: AnyNode, scope: str, options: Options) -> dict[str, Any]:
    place = scope + node.name
    inner = f"{place}[]/" if repeats(node) else f"{place}/"
    return {
        "name": node.name,
        "type": node.type,
        "place": place,
        "scope": inner,
        "options": options.get(place, {}),
        "on_error": node.on_error,
        "compensate": bool(getattr(node, "compensate", False)),
        "external": bool(getattr(node, "external", False)),
        "lanes": [{"name": name, "nodes": _nodes(lane, inner, options)} for name, lane in _lanes(node)],
        "about": {name: getattr(node, name) for name in _ABOUT if hasattr(node, name)},
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
