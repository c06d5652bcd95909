"""Charts of a plan: an outline (each node with its kind and its options), a tree of lines, and a Mermaid flowchart."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rival_workers.engine import paths
from rival_workers.engine.nodes import (
    AnyNode,
    Body,
    BranchNode,
    Leaf,
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
    """What differs from the defaults, by the names that users write: of the plan, and of its options."""
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


def tree(entries: Sequence[Entry], margin: str = "") -> Iterator[tuple[str, Entry]]:
    """Each entry with the lines to draw before it."""
    for position, entry in enumerate(entries, 1):
        is_last = position == len(entries)
        yield margin + ("└─ " if is_last else "├─ "), entry
        yield from tree(entry.inner, margin + ("   " if is_last else "│  "))


def lines(entries: Sequence[Entry]) -> list[str]:
    return [f"{lead}{entry.name}  {entry.remark}".rstrip() for lead, entry in tree(entries)]


# -- Mermaid ----------------------------------------------------------------------------------------------

#: Characters that would end a quoted label, or be read as markup.
_ESCAPES = {ord(c): f"#{ord(c)};" for c in '"#&<>`\\'}


@dataclass(frozen=True)
class Exit:
    """The start of an arrow, and its label."""

    node: str
    label: str = ""

    def to(self, target: str) -> str:
        return f'{self.node} -->|"{escaped(self.label)}"| {target}' if self.label else f"{self.node} --> {target}"


def mermaid(name: str, plan: Plan, options: Options = NO_OPTIONS) -> str:
    """A flowchart in the form that GitHub renders. The next node hangs on a node's exits: a step has one, a branch one
    for each sequence. Other composites are boxes with their steps inside."""
    return "\n".join(["flowchart TD", *Chart(options).draw(name, plan)]) + "\n"


def escaped(text: str) -> str:
    return " ".join(text.split()).translate(_ESCAPES)


class Chart:
    def __init__(self, options: Options) -> None:
        self._options = options
        self._numbers = itertools.count(1)
        self._lines: list[str] = []
        self._depth = 1

    def draw(self, name: str, plan: Plan) -> list[str]:
        self._line(f'start(["{escaped(name)}"])')
        exits = self._body(plan.nodes, "", [Exit("start")])
        self._line('finish(["done"])')
        self._arrows(exits, "finish")
        if plan.on_error:
            self._line('handler["on_error"]')
            self._line("start -.->|fails| handler")
        return self._lines

    def _line(self, line: str) -> None:
        self._lines.append("  " * self._depth + line)

    def _arrows(self, exits: Sequence[Exit], target: str) -> None:
        for one in exits:
            self._line(one.to(target))

    def _body(self, body: Body, scope: str, exits: list[Exit]) -> list[Exit]:
        """Draws a sequence that is entered from these exits; returns its own exits."""
        for node in body:
            exits = self._node(node, scope, exits)
        return exits

    def _label(self, node: AnyNode, scope: str) -> str:
        return _label(entry(node, scope, self._options))

    def _node(self, node: AnyNode, scope: str, before: list[Exit]) -> list[Exit]:
        own = f"n{next(self._numbers)}"
        if isinstance(node, BranchNode):
            return self._branch(own, node, scope, before)
        if isinstance(node, Leaf):
            left, right = ("([", "])") if isinstance(node, SleepNode) else ("[", "]")
            self._line(f"{own}{left}{self._label(node, scope)}{right}")
        else:
            self._box(own, node, scope)
        self._arrows(before, own)
        return [Exit(own)]

    def _branch(self, own: str, node: BranchNode, scope: str, before: list[Exit]) -> list[Exit]:
        self._line(f"{own}{{{self._label(node, scope)}}}")
        self._arrows(before, own)
        inner = inner_scope(node, scope)
        exits = [end for label, body in branches_of(node) for end in self._body(body, inner, [Exit(own, label)])]
        return exits if node.otherwise else [*exits, Exit(own, "otherwise")]

    def _box(self, own: str, node: AnyNode, scope: str) -> None:
        self._line(f"subgraph {own}[{self._label(node, scope)}]")
        self._depth += 1
        for _, body in branches_of(node):
            self._body(body, inner_scope(node, scope), [])
        self._depth -= 1
        self._line("end")


def _label(one: Entry) -> str:
    remark = f"<br/>{escaped(one.remark)}" if one.remark else ""
    return f'"{escaped(one.name)}{remark}"'
