"""The plan: the nodes of a workflow as data. It is stored once per version, and its hash is the version. The options
of steps are not part of it: see `policies`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from pydantic import BaseModel, ConfigDict

from rival_workers.engine import paths
from rival_workers.engine.nodes import (
    AnyNode,
    Body,
    BranchNode,
    FlowNode,
    ForEachNode,
    Leaf,
    LoopNode,
    ParallelNode,
    StepNode,
    WorkflowNode,
    bodies,
    repeats,
)

for _node in (BranchNode, ParallelNode, ForEachNode, LoopNode, WorkflowNode):
    _node.model_rebuild()


@dataclass(frozen=True, eq=False)
class Place:
    """A node and its position in the plan. `path` has no numbers: `batches[]/process`."""

    node: AnyNode
    path: str
    body: Body
    position: int
    parent: Place | None

    @property
    def scope(self) -> str:
        """The prefix of the places of its children."""
        return f"{self.path}[]/" if repeats(self.node) else f"{self.path}/"

    @property
    def before(self) -> AnyNode | None:
        return self.body[self.position - 1] if self.position else None

    @property
    def after(self) -> AnyNode | None:
        return self.body[self.position + 1] if self.position + 1 < len(self.body) else None

    def lineage(self) -> Iterator[Place]:
        """The composites around it, the innermost first."""
        place = self.parent
        while place is not None:
            yield place
            place = place.parent


class Plan(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    nodes: Body
    on_error: bool = False

    @cached_property
    def version(self) -> str:
        canonical = json.dumps(self.model_dump(mode="json", exclude_defaults=True), sort_keys=True)
        return hashlib.sha256(canonical.encode()).hexdigest()[:12]

    @cached_property
    def places(self) -> dict[str, Place]:
        """Every node by its place, in the order of the plan."""
        return {place.path: place for place in _places(self.nodes, "", None)}

    @cached_property
    def scopes(self) -> dict[str, dict[str, Place]]:
        """The nodes of each scope by name."""
        found: dict[str, dict[str, Place]] = {"": {}}
        for place in self.places.values():
            found.setdefault(paths.scope_of(place.path), {})[place.node.name] = place
        return found

    @cached_property
    def compensations(self) -> frozenset[str]:
        """The places of the steps that have compensations."""
        found = ((path, place.node) for path, place in self.places.items())
        return frozenset(path for path, node in found if isinstance(node, StepNode | FlowNode) and node.compensate)

    def place(self, path: str) -> Place:
        """The place of the node at this path; of a role, an iteration or an item, that of its node."""
        return self.places[paths.place_of(paths.role_of(path)[0]).removesuffix("[]")]

    @property
    def step_count(self) -> int:
        return sum(isinstance(place.node, Leaf) for place in self.places.values())

    @classmethod
    def load(cls, data: dict[str, Any]) -> Plan:
        return cls.model_validate(data)


def _places(body: Body, scope: str, parent: Place | None) -> Iterator[Place]:
    for position, node in enumerate(body):
        place = Place(node, scope + node.name, body, position, parent)
        yield place
        for inner in bodies(node):
            yield from _places(inner, place.scope, place)
