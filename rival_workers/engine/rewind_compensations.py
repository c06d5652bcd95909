"""What compensations mean for a retry or a rewind: a step whose compensation has begun is as if it had not been done.

Pure. A workflow that has kept its failure to itself stays as it is with all that was undone in it, unless the run goes
back into it, or its unwinding was stopped.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Protocol

from rival_client.model import kinds
from rival_workers.engine import interpreter
from rival_workers.engine.paths import COMPENSATION
from rival_workers.engine.plan import Plan


class StepRow(Protocol):
    @property
    def kind(self) -> str: ...
    @property
    def status(self) -> str: ...
    @property
    def started(self) -> bool: ...


@dataclass(frozen=True)
class CompensatedSteps:
    #: As if they had not been done.
    steps: tuple[str, ...] = ()
    #: Rows of compensations and unwindings that mean nothing any more.
    rows: frozenset[str] = frozenset()
    #: Workflows that were being unwound when the run was stopped.
    stopped: frozenset[str] = frozenset()


def compensated_steps(plan: Plan, rows: Mapping[str, StepRow], targets: Collection[str]) -> CompensatedSteps:
    """`targets`: the steps that the run goes back to anyway."""
    if not plan.compensations:
        return CompensatedSteps()
    scopes = {path.removesuffix(COMPENSATION): row for path, row in rows.items() if row.kind == kinds.COMPENSATING}
    stopped = frozenset(scope for scope, row in scopes.items() if scope and row.status == "cancelled")
    entered = {scope for path in targets for scope in interpreter.absorbing(plan, path)}
    stay = {scope for scope in scopes if scope and scope not in stopped | entered}
    gone = {
        path: row
        for path, row in rows.items()
        if row.kind == kinds.COMPENSATION and stay.isdisjoint(_scope_of(plan, path, scopes, stopped))
    }
    steps = tuple(path.removesuffix(COMPENSATION) for path, row in gone.items() if _is_undone(row))
    return CompensatedSteps(
        steps, frozenset({*gone, *(scope + COMPENSATION for scope in scopes.keys() - stay)}), stopped
    )


def _scope_of(plan: Plan, path: str, scopes: Mapping[str, StepRow], stopped: Collection[str]) -> tuple[str, ...]:
    """The workflow that a compensation was part of the unwinding of; none: it was the run's. A workflow's that was
    stopped has been taken over by that of what is around it.
    """
    around = interpreter.absorbing(plan, path)
    return next(((scope,) for scope in around if scope in scopes and scope not in stopped), ())


def _is_undone(compensation: StepRow) -> bool:
    """It has begun, or somebody has done it by hand. One that was skipped before it began has undone nothing."""
    return compensation.started or compensation.status == "completed"
