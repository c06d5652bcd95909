"""The plan: the nodes of a workflow as data. It is stored once per version, and its hash is the version."""

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
#: The largest limits that a definition can have; more is probably a mistake.
MAX_ITERATIONS = 1_000_000
MAX_CONCURRENCY = 1000


class StepConfig(BaseModel):
    """The options of one step. Durations are seconds."""

    # No database stores an infinite duration.
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    timeout: float | None = Field(default=None, gt=0)
    on_timeout: Literal["stop", "retry"] = "stop"
    #: Kill the process that still runs the attempt after its timeout (prefork only).
    kill_on_timeout: bool = False
    max_attempts: int | None = Field(default=None, ge=1)
    backoff: Backoff | None = None
    base_delay: float = Field(default=0.5, ge=0)
    max_delay: float = Field(default=30.0, ge=0)
    #: Seconds without a heartbeat after which the attempt times out.
    heartbeat: float | None = Field(default=None, gt=0)
    #: "external": its function only begins it, and an external system completes it.
    execution_mode: Literal["durable", "external"] = "durable"
    #: Seconds that the external system has, from the return of the function.
    deadline: float | None = Field(default=None, gt=0)

    @property
    def is_external(self) -> bool:
        return self.execution_mode == "external"

    @property
    def limit(self) -> float | None:
        """Seconds after its start at which an attempt times out, without a heartbeat. The heartbeats of an external
        step are those of the external system: they count from the return of its function."""
        if self.heartbeat is None or self.is_external:
            return self.timeout
        return shortest(self.timeout, self.heartbeat)

    @property
    def of_compensation(self) -> StepConfig:
        """The options of the step's compensation: retries and timeout of the step, run by a worker."""
        return self.model_copy(update={"execution_mode": "durable", "heartbeat": None, "deadline": None})

    @property
    def patience(self) -> float | None:
        """Seconds that an external step waits without a heartbeat or completion."""
        return shortest(self.deadline, self.heartbeat)


def shortest(*durations: float | None) -> float | None:
    return min((one for one in durations if one is not None), default=None)


class _Node(BaseModel):
    """`config`: the options of the step, or of the function of a composite (`when`, `items`, …)."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    config: StepConfig = StepConfig()
    on_error: bool = False


class StepNode(_Node):
    # A default, so that the version of plans that have only steps stays the same.
    type: Literal["step"] = "step"
    #: It has a compensation.
    compensate: bool = False


class SleepNode(_Node):
    """Waits for some time. Costs a row and no worker."""

    type: Literal["sleep"]
    seconds: float = Field(ge=0, allow_inf_nan=False)


class WaitNode(_Node):
    """Waits for an event. `config`: the options of the function that makes its key."""

    type: Literal["wait_event"]
    topic: str
    key: str | None = None
    #: A function makes its key.
    own_key: bool = False
    #: The event's payload must contain this.
    where: dict[str, Any] | None = None
    #: Seconds after which the wait ends.
    timeout: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    on_timeout: Literal["stop", "continue"] = "stop"


class FlowNode(_Node):
    """A function that can wait in the middle; its checkpoints are known only when it runs."""

    type: Literal["flow"]
    #: The version of its code, as its author gives it.
    code: str | None = None
    #: It has a compensation.
    compensate: bool = False


class BranchNode(_Node):
    """One of two sequences, chosen by `when`."""

    type: Literal["branch"]
    then: Body
    otherwise: Body = ()


class ParallelNode(_Node):
    """Several sequences at once; it ends when all of them have ended."""

    type: Literal["parallel"]
    branches: tuple[Body, ...]
    on_failure: OnFailure = "cancel"


class ForEachNode(_Node):
    """The same sequence for each item of a list, up to `concurrency` at a time."""

    type: Literal["for_each"]
    do: Body
    concurrency: int = Field(default=1, ge=1, le=MAX_CONCURRENCY)
    on_failure: OnFailure = "cancel"
    #: Whether its result is the list of the items' results.
    collect: bool = True


class LoopNode(_Node):
    """The same sequence again, until or while a condition is true, or a number of times."""

    type: Literal["loop"]
    do: Body
    mode: LoopMode
    max_iterations: int = Field(ge=1, le=MAX_ITERATIONS)


class WorkflowNode(_Node):
    """Another workflow as a step of this one; `on_error` is its own handler."""

    type: Literal["workflow"]
    workflow: str
    body: Body
    #: A function makes its input; otherwise it has the input of the workflow around it.
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
    """The sequences of a composite; a leaf has none."""
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
    """Whether the paths of its children have a number."""
    return isinstance(node, ForEachNode | LoopNode)


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
    def compensations(self) -> dict[str, StepConfig]:
        """The places of the steps that have compensations, and the options of those."""
        found = ((path, place.node) for path, place in self.places.items())
        return {
            path: node.config.of_compensation
            for path, node in found
            if isinstance(node, StepNode | FlowNode) and node.compensate
        }

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
