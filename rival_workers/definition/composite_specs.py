"""Composites as a definition holds them, before they become nodes of a plan."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from rival_workers.definition.call_places import caller
from rival_workers.engine.nodes import OnFailure

Function = Callable[..., Any]
#: A list of steps, or one of them.
Steps = Sequence[Any] | Function


@dataclass(frozen=True)
class CompositeSpec:
    #: Its type in a plan.
    kind: ClassVar[str]

    name: str
    #: Options as of a step, for its function (`when`, `items`, `until`, `input`).
    options: Mapping[str, Any] = field(default_factory=dict, kw_only=True)
    #: Where it was written.
    origin: str = field(default_factory=caller, kw_only=True, compare=False, repr=False)


@dataclass(frozen=True)
class BranchSpec(CompositeSpec):
    kind = "branch"

    when: Function
    then: Steps
    otherwise: Steps


@dataclass(frozen=True)
class ParallelSpec(CompositeSpec):
    kind = "parallel"

    branches: Sequence[Any]
    on_failure: OnFailure


@dataclass(frozen=True)
class ForEachSpec(CompositeSpec):
    kind = "for_each"

    items: Function
    do: Steps
    concurrency: int
    on_failure: OnFailure
    collect: bool


@dataclass(frozen=True)
class LoopSpec(CompositeSpec):
    kind = "loop"

    do: Steps
    until: Function | None
    while_: Function | None
    max_iterations: int | None


@dataclass(frozen=True)
class WorkflowSpec(CompositeSpec):
    kind = "workflow"

    #: A file, a name, or the workflow itself.
    reference: Any
    input: Function | None
    propagate_failure: bool
