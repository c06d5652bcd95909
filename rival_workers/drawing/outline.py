"""A plan in words: each node with its kind and the options that are not the defaults. Every drawing begins here."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from rival_workers.engine import paths
from rival_workers.engine.plan import (
    AnyNode,
    Body,
    BranchNode,
    LoopNode,
    ParallelNode,
    Plan,
    SleepNode,
    StepNode,
    WorkflowNode,
    bodies,
)

#: What a node consists of, or is called by; everything else about it is an option.
_NO_OPTIONS = {"name", "type", "config", "then", "otherwise", "branches", "do", "body"}
#: Options that the words for a kind say already.
_SAID = {"sleep": {"seconds"}, "loop": {"mode"}, "workflow": {"workflow"}}


@dataclass(frozen=True)
class Entry:
    """One line of an outline. `kind` is "" for a plain step, and for what only groups: `then`, `lane 2`."""

    name: str
    kind: str = ""
    options: tuple[str, ...] = ()
    inner: tuple[Entry, ...] = ()

    @property
    def remark(self) -> str:
        return ", ".join([self.kind, *self.options] if self.kind else self.options)


def outline(plan: Plan) -> tuple[Entry, ...]:
    """The workflow's own handler is a line of its own, the last one."""
    handler = (Entry(paths.HANDLER, "handler of the workflow"),) if plan.on_error else ()
    return (*_entries(plan.nodes), *handler)


def _entries(body: Body) -> tuple[Entry, ...]:
    return tuple(entry(node) for node in body)


def entry(node: AnyNode) -> Entry:
    said = _SAID.get(node.type, set())
    options = tuple(option_text(name, value) for name, value in options_of(node).items() if name not in said)
    return Entry(node.name, kind_of(node), options, _inner(node))


def _inner(node: AnyNode) -> tuple[Entry, ...]:
    found: list[Entry] = []
    for label, body in ways(node):
        found += [Entry(label, inner=_entries(body))] if label else _entries(body)
    return tuple(found)


def ways(node: AnyNode) -> list[tuple[str, Body]]:
    """A composite's sequences, each with what it is called; one that speaks for itself has no name."""
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


def options_of(node: AnyNode) -> dict[str, Any]:
    """What is said about a node and is not the default, by the names that users write."""
    own = node.model_dump(mode="json", exclude_defaults=True, exclude=_NO_OPTIONS)
    return {**own, **node.config.model_dump(mode="json", exclude_defaults=True)}


def option_text(name: str, value: Any) -> str:
    return name if value is True else f"{name}={value_text(value)}"


def value_text(value: Any) -> str:
    if isinstance(value, str | bool):
        return str(value)
    return _number(value) if isinstance(value, float) else json.dumps(value, ensure_ascii=False)


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else str(value)
