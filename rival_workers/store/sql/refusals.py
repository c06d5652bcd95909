"""Explains why an operator's verb does not apply to a run, and what to do instead. Texts only: reads and changes
nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from rival_client.errors import listed
from rival_client.model import statuses
from rival_workers.engine import paths


def wrong_status(status: str, step: str | None) -> str:
    """Why a run with this status cannot be retried, or rewound to the step."""
    if status == statuses.PENDING:
        begun = "no step has begun" if step is None else f"step {step!r} has not begun"
        return f"it is pending, and {begun}: wait for a worker, or cancel it"
    if status == statuses.COMPLETED:
        return "it is completed: rewind it to the step from which it should run again"
    return f"it is {status}, and only a failed or cancelled run can be retried: rewind it to a step, or cancel it first"


def not_begun(verb: str, step: str) -> str:
    return f"step {step!r} does not exist yet, since the run is pending: {verb} it when a worker has begun the run"


def stopped_elsewhere(verb: str, status: str, step: str, stopped: Sequence[str]) -> str:
    """The run has ended, but not because of this step."""
    return (
        f"it is {status}, and not at {step!r} but at {', '.join(stopped)}: {verb} that one, or rewind the run to an "
        "earlier step"
    )


def compensated(verb: str, status: str, step: str, stopped: Sequence[str]) -> str:
    return (
        f"it is {status}, and its compensations have undone what came before {step!r}. A retry begins again with "
        f"{', '.join(stopped)}: retry it, and {verb} the step when the run has reached it"
    )


def checkpoint(verb: str, step: str, flow: str) -> str:
    """A flow continues in its own code after a checkpoint, so the plan cannot continue from there."""
    again = f"rewind the run to {step!r} to run it again"
    return f"{step!r} is a checkpoint of flow {flow!r}: {again}, or {verb} {flow!r} as a whole"


def unknown_step(step: str, still_open: Sequence[str]) -> str:
    return f"unknown step {step!r} ({_listed(still_open)}): {_one_of(still_open)}"


def not_open(step: str, status: str, still_open: Sequence[str]) -> str:
    base = paths.role_of(step)[0]
    back = f"rewind the run to {base!r} to run it again" if base else "rewind the run to a step"
    return f"step {step!r} is {status} ({_listed(still_open)}): {back}"


def composite(verb: str, step: str, kind: str, still_open: Sequence[str]) -> str:
    article = "an" if kind[:1] in "aeiou" else "a"
    return (
        f"{step!r} is {article} {kind}, and ends only with its steps ({_listed(still_open)}): {verb} each of them, or "
        "cancel the run"
    )


def _listed(still_open: Sequence[str]) -> str:
    return f"open steps: {listed(still_open) or 'none'}"


def _one_of(still_open: Sequence[str]) -> str:
    return "name an open step" if still_open else "`rival show` lists the steps of a run"
