"""The outline of a plan: each node with its kind and its options."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rival_workers.engine import paths
from rival_workers.engine.nodes import (
    AnyNode,
    Body,
    BranchNode,
    LoopNode,
    ParallelNode,
    SleepNode,
    StepNode,
    WorkflowNode,
    bodies,
    repeats,
)
from rival_workers.engine.plan import Plan

#: The options of each node that are not the defaults, by place.
Options = Mapping[str, Mapping[str, Any]]
NO_OPTIONS: Options = {}
#: Fields of a node that are not options.
_NOT_OPTIONS = {"name", "type", "then", "otherwise", "branches", "do", "body"}
#: Options that the text of a kind contains.
_IN_KIND = {"sleep": {"seconds"}, "loop": {"mode"}, "workflow": {"workflow"}}


@dataclass(frozen=True)
class Entry:
    """One line of an outline. `kind` is "" for a plain step and for groups: `then`, `lane 2`."""

    name: str
    kind: str = ""
    options: tuple[str, ...] = ()
    inner: tuple[Entry, ...] = ()

    @property
    def remark(self) -> str:
        return ", ".join([self.kind, *self.options] if self.kind else self.options)


def outline(plan: Plan, options: Options = NO_OPTIONS) -> tuple[Entry, ...]:
    """`options`: of each node, by place. The handler of the workflow is the last line."""
    handler = (Entry(paths.HANDLER, "handler of the workflow"),) if plan.on_error else ()
    return (*_entries(plan.nodes, "", options), *handler)


def _entries(body: Body, scope: str, options: Options) -> tuple[Entry, ...]:
    return tuple(entry(node, scope, options) for node in body)


def entry(node: AnyNode, scope: str, options: Options) -> Entry:
    in_kind, path = _IN_KIND.get(node.type, set()), scope + node.name
    shown = options_of(node, options.get(path, {}))
    texts = tuple(option_text(name, value) for name, value in shown.items() if name not in in_kind)
    return Entry(node.name, kind_of(node), texts, _inner(node, inner_scope(node, scope), options))


def inner_scope(node: AnyNode, scope: str) -> str:
    """The prefix of the places of its children."""
    return f"{scope}{node.name}[]/" if repeats(node) else f"{scope}{node.name}/"


def _inner(node: AnyNode, scope: str, options: Options) -> tuple[Entry, ...]:
    found: list[Entry] = []
    for label, body in branches_of(node):
        inner = _entries(body, scope, options)
        found += [Entry(label, inner=inner)] if label else inner
    return tuple(found)


def branches_of(node: AnyNode) -> list[tuple[str, Body]]:
    """The sequences of a composite, each with its label; "" if it needs none."""
    match node:
        case BranchNode():
            return [(label, body) for label, body in (("then", node.then), ("otherwise", node.otherwise)) if body]
        case ParallelNode():
            return [(f"lane {n}" if len(body) > 1 else "", body) for n, body in enumerate(node.branches, 1)]
        case _:
            return [("", body) for body in bodies(node)]


def kind_of(node: AnyNode) -> str:
    match node:
        case StepNode():
            return ""
        case SleepNode():
            return f"sleep {_number(node.seconds)} s"
        case LoopNode():
            return "loop" if node.mode == "count" else f"loop {node.mode}"
        case WorkflowNode():
            return f"workflow {node.workflow}"
        case _:
            return node.type


def options_of(node: AnyNode, options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a node that are not the defaults, in the plan and beside it, by the names that users write."""
    own = node.model_dump(mode="json", exclude_defaults=True, exclude=_NOT_OPTIONS)
    if own.pop("external", False):
        own["execution_mode"] = "external"
    return {**own, **options}


def option_text(name: str, value: Any) -> str:
    return name if value is True else f"{name}={value_text(value)}"


def value_text(value: Any) -> str:
    if isinstance(value, str | bool):
        return str(value)
    return _number(value) if isinstance(value, float) else json.dumps(value, ensure_ascii=False)


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else str(value)
