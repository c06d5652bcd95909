"""Charts of a plan: a tree of lines, and a Mermaid flowchart."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rival_workers.drawing.plan_outline import NO_OPTIONS, Entry, Options, branches_of, entry, inner_scope
from rival_workers.engine.nodes import AnyNode, Body, BranchNode, Leaf, SleepNode
from rival_workers.engine.plan import Plan


def tree(entries: Sequence[Entry], margin: str = "") -> Iterator[tuple[str, Entry]]:
    """Each entry with the lines to draw before it."""
    for position, one in enumerate(entries, 1):
        is_last = position == len(entries)
        yield margin + ("└─ " if is_last else "├─ "), one
        yield from tree(one.inner, margin + ("   " if is_last else "│  "))


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
