"""A plan as a Mermaid flowchart, in the form that GitHub renders.

What comes after a node hangs on its exits: a step has one, a branch as many as its ways. A composite that repeats,
nests or forks is a box with its steps inside.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from rival_workers.drawing.outline import Entry, entry, ways
from rival_workers.engine.plan import AnyNode, Body, BranchNode, Leaf, Plan, SleepNode

#: Inside a quoted label these would end it, or be read as markup.
_ESCAPES = {ord(c): f"#{ord(c)};" for c in '"#&<>`\\'}


@dataclass(frozen=True)
class Exit:
    """Where an arrow begins, and what is written on it."""

    node: str
    label: str = ""

    def to(self, target: str) -> str:
        return f'{self.node} -->|"{escaped(self.label)}"| {target}' if self.label else f"{self.node} --> {target}"


def mermaid(name: str, plan: Plan) -> str:
    return "\n".join(["flowchart TD", *Chart().draw(name, plan)]) + "\n"


def escaped(text: str) -> str:
    return " ".join(text.split()).translate(_ESCAPES)


class Chart:
    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self._lines: list[str] = []
        self._depth = 1

    def draw(self, name: str, plan: Plan) -> list[str]:
        self._say(f'start(["{escaped(name)}"])')
        exits = self._body(plan.nodes, [Exit("start")])
        self._say('finish(["done"])')
        self._arrows(exits, "finish")
        if plan.on_error:
            self._say('handler["on_error"]')
            self._say("start -.->|fails| handler")
        return self._lines

    def _say(self, line: str) -> None:
        self._lines.append("  " * self._depth + line)

    def _arrows(self, exits: Sequence[Exit], target: str) -> None:
        for one in exits:
            self._say(one.to(target))

    def _body(self, body: Body, exits: list[Exit]) -> list[Exit]:
        """A sequence that is entered from these exits; its own."""
        for node in body:
            exits = self._node(node, exits)
        return exits

    def _node(self, node: AnyNode, before: list[Exit]) -> list[Exit]:
        own = f"n{next(self._numbers)}"
        if isinstance(node, BranchNode):
            return self._branch(own, node, before)
        if isinstance(node, Leaf):
            left, right = ("([", "])") if isinstance(node, SleepNode) else ("[", "]")
            self._say(f"{own}{left}{_label(entry(node))}{right}")
        else:
            self._box(own, node)
        self._arrows(before, own)
        return [Exit(own)]

    def _branch(self, own: str, node: BranchNode, before: list[Exit]) -> list[Exit]:
        self._say(f"{own}{{{_label(entry(node))}}}")
        self._arrows(before, own)
        exits = [end for label, body in ways(node) for end in self._body(body, [Exit(own, label)])]
        return exits if node.otherwise else [*exits, Exit(own, "otherwise")]

    def _box(self, own: str, node: AnyNode) -> None:
        self._say(f"subgraph {own}[{_label(entry(node))}]")
        self._depth += 1
        for _, body in ways(node):
            self._body(body, [])
        self._depth -= 1
        self._say("end")


def _label(one: Entry) -> str:
    remark = f"<br/>{escaped(one.remark)}" if one.remark else ""
    return f'"{escaped(one.name)}{remark}"'
