"""The plan: what a workflow does, as pure data. Stored once per version; its hash is the version."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from rival_workers.engine import paths
from rival_workers.errors import Backoff

OnFailure = Literal["cancel", "wait", "continue"]
LoopMode = Literal["until", "while", "count"]
#: More turns than this are more likely a mistake than a wish.
MAX_ITERATIONS = 1_000_000
MAX_CONCURRENCY = 1000


class StepConfig(BaseModel):
    """How one step is run. Durations are seconds."""

    # An infinite duration is no interval in any database.
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    timeout: float | None = Field(default=None, gt=0)
    on_timeout: Literal["stop", "retry"] = "stop"
    #: Kill the process that is still at it after its timeout (prefork only).
    kill_on_timeout: bool = False
    max_attempts: int | None = Field(default=None, ge=1)
    backoff: Backoff | None = None
    base_delay: float = Field(default=0.5, ge=0)
    max_delay: float = Field(default=30.0, ge=0)
    #: Seconds without a heartbeat after which it is timed out.
    heartbeat: float | None = Field(default=None, gt=0)
    #: "external": its function only begins it, and somebody outside completes it.
    execution_mode: Literal["durable", "external"] = "durable"
    #: Seconds that somebody outside has for it, from when the function has returned.
    deadline: float | None = Field(default=None, gt=0)

    @property
    def is_external(self) -> bool:
        return self.execution_mode == "external"

    @property
    def limit(self) -> float | None:
        """Seconds after its start at which an attempt is timed out, unless it has beaten before. An external step's
        beats are those of the outside: they count from when its function has returned."""
        if self.heartbeat is None or self.is_external:
            return self.timeout
        return shortest(self.timeout, self.heartbeat)

    @property
    def of_compensation(self) -> StepConfig:
        """How what undoes the step is run: as often and as long as the step, and by a worker."""
        return self.model_copy(update={"execution_mode": "durable", "heartbeat": None, "deadline": None})

    @property
    def patience(self) -> float | None:
        """Seconds that an external step waits without hearing from outside."""
        return shortest(self.deadline, self.heartbeat)


def shortest(*durations: float | None) -> float | None:
    return min((one for one in durations if one is not None), default=None)


class _Node(BaseModel):
    """`config` is that of the step, or of the function that is asked on a composite's behalf."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    config: StepConfig = StepConfig()
    on_error: bool = False


class StepNode(_Node):
    # A default, so that plans of steps alone keep the version they have always had.
    type: Literal["step"] = "step"
    #: It can be undone.
    compensate: bool = False


class SleepNode(_Node):
    """Nothing, for a while. Costs a row and no worker."""

    type: Literal["sleep"]
    seconds: float = Field(ge=0, allow_inf_nan=False)


class WaitNode(_Node):
    """Until an event comes. `config` is that of the function that makes its key."""

    type: Literal["wait_event"]
    topic: str
    key: str | None = None
    #: Its key is made by a function.
    own_key: bool = False
    #: The event's payload must hold this.
    where: dict[str, Any] | None = None
    #: Seconds after which nobody waits any more.
    timeout: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    on_timeout: Literal["stop", "continue"] = "stop"


class FlowNode(_Node):
    """A function that may stop in the middle; what it does is known only when it does it."""

    type: Literal["flow"]
    #: What its author calls the version of its code.
    code: str | None = None
    #: It can be undone.
    compensate: bool = False


class BranchNode(_Node):
    """One of two ways, chosen by `when`."""

    type: Literal["branch"]
    then: Body
    otherwise: Body = ()


class ParallelNode(_Node):
    """Several ways at once; it ends when all of them have."""

    type: Literal["parallel"]
    branches: tuple[Body, ...]
    on_failure: OnFailure = "cancel"


class ForEachNode(_Node):
    """The same for each of a list of items, so many at a time."""

    type: Literal["for_each"]
    do: Body
    concurrency: int = Field(default=1, ge=1, le=MAX_CONCURRENCY)
    on_failure: OnFailure = "cancel"
    #: Its result is the list of the items' results.
    collect: bool = True


class LoopNode(_Node):
    """The same again, until or while a condition holds, or a number of times."""

    type: Literal["loop"]
    do: Body
    mode: LoopMode
    max_iterations: int = Field(ge=1, le=MAX_ITERATIONS)


class WorkflowNode(_Node):
    """Another workflow as a step of this one; `on_error` is its own handler."""

    type: Literal["workflow"]
    workflow: str
    body: Body
    #: Its input is made by a function; otherwise it is that of the workflow around it.
    own_input: bool = False
    propagate_failure: bool = True


Composite = BranchNode | ParallelNode | ForEachNode | LoopNode | WorkflowNode
Leaf = StepNode | SleepNode | WaitNode | FlowNode
AnyNode = Leaf | Composite
Node = Annotated[AnyNode, Field(discriminator="type")]
Body = tuple[Node, ...]

for _node in (BranchNode, ParallelNode, ForEachNode, LoopNode, WorkflowNode):
    _node.model_rebuild()


def bodies(node: AnyNode) -> tuple[Body, ...]:
    """The sequences of which a composite consists; a step has none."""
    match node:
        case BranchNode():
            return (node.then, node.otherwise)
        case ParallelNode():
            return node.branches
        case ForEachNode() | LoopNode():
            return (node.do,)
        case WorkflowNode():
            return (node.body,)
        case _:
            return ()


def repeats(node: AnyNode) -> bool:
    """Its children have a number in their paths."""
    return isinstance(node, ForEachNode | LoopNode)


@dataclass(frozen=True, eq=False)
class Place:
    """A node where it stands in its plan. `path` has no numbers: `batches[]/process`."""

    node: AnyNode
    path: str
    body: Body
    position: int
    parent: Place | None

    @property
    def scope(self) -> str:
        """What the places of its children begin with."""
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
        """The nodes of each scope by name: what a step can see at once."""
        found: dict[str, dict[str, Place]] = {"": {}}
        for place in self.places.values():
            found.setdefault(paths.scope_of(place.path), {})[place.node.name] = place
        return found

    @cached_property
    def compensations(self) -> dict[str, StepConfig]:
        """The places of the steps that can be undone, and how what undoes them is run."""
        found = ((path, place.node) for path, place in self.places.items())
        return {
            path: node.config.of_compensation
            for path, node in found
            if isinstance(node, StepNode | FlowNode) and node.compensate
        }

    def place(self, path: str) -> Place:
        """Where the step at this path stands; for what hangs on it or is a turn of it, the node."""
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
