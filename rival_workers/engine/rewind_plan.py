"""The input and the result of planning a retry or rewind: the rows of a run, and which of them are deleted, wait again
or open. Computes which rows a rewind deletes: the target steps and everything after them, at every nesting level, and
the steps whose compensations have begun, as if they had not been done. Pure.

Each row is visited once, however many targets there are: a run may go back in thousands of lanes.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from rival_client.model import kinds, statuses
from rival_workers.engine import interpreter, paths
from rival_workers.engine.effects import OpenRow
from rival_workers.engine.nodes import LoopNode
from rival_workers.engine.paths import CANCEL, COMPENSATION, HANDLER
from rival_workers.engine.plan import Plan


class NotPossible(Exception):
    """The reason why a run cannot be opened again in this way."""


@dataclass(frozen=True)
class Row:
    """What the plan needs of a step's row."""

    path: str
    kind: str
    status: str
    #: An attempt has claimed it.
    started: bool = True
    #: Of a flow's checkpoint: the position of its end among those that the flow received, and how many of them the
    #: flow had received when it reached the checkpoint.
    end_order: int | None = None
    begun_after: int | None = None
    #: Its number in its lane.
    number: int | None = None
    #: Of a flow that has failed: the paths of the checkpoints whose failures its error names.
    culprits: tuple[str, ...] = ()


@dataclass(frozen=True)
class Revived:
    """A composite or item that waits again; with counts, if it has lanes."""

    path: str
    total: int | None = None
    opened: int | None = None
    remaining: int | None = None


@dataclass
class RewindPlan:
    #: Paths of the rows that are deleted.
    deleted: list[str] = field(default_factory=list)
    revived: list[Revived] = field(default_factory=list)
    opens: list[OpenRow] = field(default_factory=list)

    @property
    def runs_again(self) -> tuple[str, ...]:
        """Steps that had begun, and those that begin now; not the compensations, which are only deleted."""
        begun = [path for path in self.deleted if not paths.is_compensation(path)]
        return tuple(dict.fromkeys([*begun, *(one.path for one in self.opens)]))


#: A sequence of the plan in this run: the scope, and the name of its first node.
Sequence = tuple[str, str]


@dataclass(frozen=True)
class Level:
    """The position of a path in one of the sequences that contain it."""

    path: str
    sequence: Sequence
    position: int
    #: The iteration of the loop, or the item of the for_each, that the path is in.
    iteration: int | None


class Downstream:
    def __init__(self, plan: Plan, steps: Iterable[str]) -> None:
        self._plan = plan
        #: The first position of each sequence that is deleted; half a position more after a composite that stays.
        self._from: dict[Sequence, float] = {}
        #: The last iteration of each loop that stays, in part.
        self._iterations: dict[str, int] = {}
        #: The composites and items around the steps.
        self.around: set[str] = set()
        given = tuple(dict.fromkeys(steps))
        for path in given:
            self._begin_at(path)
        #: The steps that do not come after another one.
        self.earliest = tuple(path for path in given if not self._is_after_another(path))

    def __contains__(self, row: str) -> bool:
        base, role = paths.role_of(row)
        if row == CANCEL or (role == HANDLER[1:] and (not base or base in self.around)):
            return True
        levels = list(self._levels(base))
        return any(self._from.get(level.sequence, math.inf) <= level.position for level in levels) or any(
            self._is_later_iteration(level, asked=role == "until" and level is levels[-1]) for level in levels
        )

    def _begin_at(self, path: str) -> None:
        for level in self._levels(path):
            is_itself = level.path == path
            first = level.position if is_itself else level.position + 0.5
            self._from[level.sequence] = min(self._from.get(level.sequence, first), first)
            if not is_itself:
                self._go_around(level)

    def _go_around(self, level: Level) -> None:
        self.around |= {level.path}
        if level.iteration is not None:
            self.around |= {f"{level.path}[{level.iteration}]"}
            if self._is_loop(level.path):
                self._iterations[level.path] = min(self._iterations.get(level.path, level.iteration), level.iteration)

    def _is_after_another(self, path: str) -> bool:
        *above, itself = self._levels(path)
        return (
            self._from[itself.sequence] < itself.position
            or any(self._from[level.sequence] <= level.position for level in above)
            or any(self._is_later_iteration(level, asked=False) for level in above)
        )

    def _is_later_iteration(self, level: Level, *, asked: bool) -> bool:
        """`asked`: it is the condition at the end of the iteration."""
        if level.iteration is None or level.path not in self._iterations:
            return False
        return level.iteration >= self._iterations[level.path] + (not asked)

    def _levels(self, path: str) -> Iterator[Level]:
        """From the top down, as far as the plan reaches: checkpoints of flows are not part of it."""
        parts = path.split("/")
        for depth in range(1, len(parts) + 1):
            here, iteration = paths.iteration_of("/".join(parts[:depth]))
            place = self._plan.places.get(paths.place_of(here))
            if place is None:
                return
            yield Level(here, (paths.scope_of(here), place.body[0].name), place.position, iteration)

    def _is_loop(self, path: str) -> bool:
        return isinstance(self._plan.place(path).node, LoopNode)


@dataclass(frozen=True)
class CompensatedSteps:
    #: Steps whose compensation has begun: they count as not done.
    steps: tuple[str, ...] = ()
    #: Rows of compensations, and of the scopes that waited for them, which are deleted.
    rows: frozenset[str] = frozenset()
    #: Workflows that were compensating when the run was stopped.
    stopped: frozenset[str] = frozenset()


def compensated_steps(plan: Plan, rows: Mapping[str, Row], targets: Collection[str]) -> CompensatedSteps:
    """Returns the compensations whose rows a rewind to `targets` deletes. Those of a nested workflow whose failure did
    not stop its parent are kept, unless a target is inside that workflow or its compensations were cancelled."""
    if not plan.compensations:
        return CompensatedSteps()
    scopes = {path.removesuffix(COMPENSATION): row for path, row in rows.items() if row.kind == kinds.COMPENSATING}
    stopped = frozenset(scope for scope, row in scopes.items() if scope and row.status == statuses.CANCELLED)
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


def _scope_of(plan: Plan, path: str, scopes: Mapping[str, Row], stopped: Collection[str]) -> tuple[str, ...]:
    """The workflow whose failure a compensation followed; none: the run's. Compensations of a workflow that was stopped
    belong to the scope around it.
    """
    around = interpreter.absorbing(plan, path)
    return next(((scope,) for scope in around if scope in scopes and scope not in stopped), ())


def _is_undone(compensation: Row) -> bool:
    """It has begun, or an operator has set its result. One that was skipped before it began has undone nothing."""
    return compensation.started or compensation.status == statuses.COMPLETED
