"""What a list of steps may hold besides steps: branch, parallel, for_each, loop, and other workflows.

These only collect; everything is checked when the workflow is registered, so that all problems come at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Unpack

from rival_workers.definition.options import CompositeOptions
from rival_workers.definition.source_lines import caller
from rival_workers.engine.plan import OnFailure

Function = Callable[..., Any]
#: A list of steps, or one of them.
Steps = Sequence[Any] | Function

#: A loop that has a condition ends with an error after so many turns, unless it says otherwise.
DEFAULT_ITERATIONS = 1000


@dataclass(frozen=True)
class CompositeSpec:
    #: What it is called in a plan.
    kind: ClassVar[str]

    name: str
    #: As for a step; they are those of the function that is asked (`when`, `items`, `until`, `input`).
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


def branch(
    name: str, *, when: Function, then: Steps, otherwise: Steps = (), **options: Unpack[CompositeOptions]
) -> BranchSpec:
    """`then` if the function `when` answers true, `otherwise` if not. Its result is that of the way it took."""
    return BranchSpec(name, when, then, otherwise, options=options)


def parallel(
    name: str, steps: Sequence[Any], *, on_failure: OnFailure = "cancel", **options: Unpack[CompositeOptions]
) -> ParallelSpec:
    """All at once; a list within the list is a sequence. Its result maps each one's last step to that step's result.

    When one fails: "cancel" the others and fail, "wait" for them and fail, or "continue" as if nothing had been.
    """
    return ParallelSpec(name, steps, on_failure, options=options)


def for_each(
    name: str,
    *,
    items: Function,
    do: Steps,
    concurrency: int = 1,
    on_failure: OnFailure = "cancel",
    collect: bool = True,
    **options: Unpack[CompositeOptions],
) -> ForEachSpec:
    """The steps of `do` once for each item that the function `items` gives, up to `concurrency` at a time. They may
    ask for `item` and `index`. Its result is the list of the items' last results, unless `collect` is False.
    """
    return ForEachSpec(name, items, do, concurrency, on_failure, collect, options=options)


def loop(
    name: str,
    *,
    do: Steps,
    until: Function | None = None,
    while_: Function | None = None,
    max_iterations: int | None = None,
    **options: Unpack[CompositeOptions],
) -> LoopSpec:
    """The steps of `do` again and again: `until` a function says so (asked after each turn), `while_` it does (asked
    before each), or just `max_iterations` times. With a condition, reaching the maximum (default 1000) is a failure.
    Steps may ask for `index`. Its result is that of the last turn.
    """
    return LoopSpec(name, do, until, while_, max_iterations, options=options)


def workflow(
    reference: Any,
    *,
    name: str | None = None,
    input: Function | None = None,
    propagate_failure: bool = True,
    **options: Unpack[CompositeOptions],
) -> WorkflowSpec:
    """Another workflow as one step of this one: by file (`"./payment.py"`), by name, or itself.

    It sees this one's steps, and its input, unless the function `input` makes it another. Its last result is the
    step's. With `propagate_failure=False` its failure does not stop this workflow.
    """
    return WorkflowSpec(name or "", reference, input, propagate_failure, options=options)
