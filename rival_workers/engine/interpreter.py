"""Reads a plan: which step comes first, and what opens or ends when a step has ended. Pure; no store, no Celery.

A step's error handler is a step of its own, at `charge!on_error`; the workflow's is at `!on_error`. They run one
after the other, the step's first, and the run fails after them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from rival_workers.engine.decisions import End
from rival_workers.engine.plan import Plan, StepConfig

HANDLER = "!on_error"


@dataclass(frozen=True)
class Opening:
    """A step to be opened: claimed at once by whoever finished, or scheduled."""

    path: str
    kind: Literal["step", "handler"]
    config: StepConfig


@dataclass(frozen=True)
class Advance:
    """What follows from a step's end."""

    opening: Opening | None = None
    #: The run ends with this status.
    run_ends: Literal["completed", "failed"] | None = None
    #: The run is now bound to fail with this step's error; its handlers come first.
    fails_run: bool = False


def is_handler(path: str) -> bool:
    return path.endswith(HANDLER)


def config_of(plan: Plan, path: str) -> StepConfig:
    """A handler has no retries and no timeout of its own."""
    return StepConfig(max_attempts=1) if is_handler(path) else plan.node(path).config


def opening(plan: Plan, path: str) -> Opening:
    return Opening(path, "handler" if is_handler(path) else "step", config_of(plan, path))


def first(plan: Plan) -> Opening:
    return opening(plan, plan.nodes[0].name)


def advance(plan: Plan, path: str, end: End, *, failing: bool) -> Advance:
    """`failing`: the run is bound to fail already, and `path` is one of its handlers."""
    if is_handler(path):
        return _after_handler(plan, path.removesuffix(HANDLER), failing)
    node = plan.node(path)
    if end.status == "failed" and end.hard:
        return _unwind(plan, path)
    if end.status == "failed" and node.on_error:
        return Advance(opening(plan, path + HANDLER))
    return _next(plan, path)


def _next(plan: Plan, path: str) -> Advance:
    position = plan.position(path) + 1
    if position == len(plan.nodes):
        return Advance(run_ends="completed")
    return Advance(opening(plan, plan.nodes[position].name))


def _unwind(plan: Plan, path: str) -> Advance:
    if plan.node(path).on_error:
        return Advance(opening(plan, path + HANDLER), fails_run=True)
    if plan.on_error:
        return Advance(opening(plan, HANDLER), fails_run=True)
    return Advance(run_ends="failed", fails_run=True)


def _after_handler(plan: Plan, of: str, failing: bool) -> Advance:
    if not failing:
        return _next(plan, of)
    if of and plan.on_error:
        return Advance(opening(plan, HANDLER))
    return Advance(run_ends="failed")
