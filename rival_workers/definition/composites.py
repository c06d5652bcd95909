"""The composites in a list of steps: branch, parallel, for_each, loop, and other workflows.

These functions only collect. Everything is checked when the workflow is registered, so that all problems are reported
at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Unpack

from rival_workers.definition.composite_specs import (
    BranchSpec,
    ForEachSpec,
    Function,
    LoopSpec,
    ParallelSpec,
    Steps,
    WorkflowSpec,
)
from rival_workers.definition.options import CompositeOptions
from rival_workers.engine.nodes import OnFailure

#: The limit of a loop that has a condition and no `max_iterations`: it then fails.
DEFAULT_ITERATIONS = 1000


def branch(
    name: str, *, when: Function, then: Steps, otherwise: Steps = (), **options: Unpack[CompositeOptions]
) -> BranchSpec:
    """Runs `then` if the function `when` returns true, else `otherwise`. Its result is that of the steps that ran."""
    return BranchSpec(name, when, then, otherwise, options=options)


def parallel(
    name: str, steps: Sequence[Any], *, on_failure: OnFailure = "cancel", **options: Unpack[CompositeOptions]
) -> ParallelSpec:
    """Runs all at once; a list within the list is a sequence. Its result maps the name of each last step to its result.

    When one fails: "cancel" the others and fail, "wait" for them and fail, or "continue" without failing.
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
    """Runs the steps of `do` for each item that the function `items` returns, up to `concurrency` at a time. Steps can
    have the parameters `item` and `index`. Its result is the list of the items' results, unless `collect` is False."""
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
    """Repeats the steps of `do`: until the function `until` returns true (called after each iteration), while `while_`
    does (called before each), or `max_iterations` times. With a condition, reaching the maximum (default 1000) is a
    failure. Steps can have the parameter `index`. Its result is that of the last iteration."""
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

    It can read this workflow's steps and has its input, unless the function `input` makes another one. Its last result
    is the result of the step. With `propagate_failure=False` its failure does not stop this workflow.
    """
    return WorkflowSpec(name or "", reference, input, propagate_failure, options=options)
