"""The nodes of a plan: steps, waits, flows, and composites with their bodies."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

OnFailure = Literal["cancel", "wait", "continue"]
LoopMode = Literal["until", "while", "count"]
#: The largest limits that a definition can have; more is probably a mistake.
MAX_ITERATIONS = 1_000_000
MAX_CONCURRENCY = 1000


class _Node(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    on_error: bool = False


class StepNode(_Node):
    # A default, so that the version of plans that have only steps stays the same.
    type: Literal["step"] = "step"
    #: Its function only begins it, and an external system completes it.
    external: bool = False
    #: It has a compensation.
    compensate: bool = False
    #: It has a function as its fallback.
    fallback: bool = False


class SleepNode(_Node):
    """Waits for some time. Costs a row and no worker."""

    type: Literal["sleep"]
    seconds: float = Field(ge=0, allow_inf_nan=False)


class WaitNode(_Node):
    """Waits for an event. Its options are those of the function that makes its key."""

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
