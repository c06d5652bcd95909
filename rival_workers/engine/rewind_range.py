"""Some steps of a run and all that came after them, at each level of the plan: what goes when the run goes back there.
Pure. Each row is looked at once, however many steps there are: a run may go back in thousands of lanes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from rival_workers.engine import paths
from rival_workers.engine.paths import HANDLER
from rival_workers.engine.plan import LoopNode, Plan

#: A sequence of the plan in this run: the scope, and the first of its nodes.
Sequence = tuple[str, str]


@dataclass(frozen=True)
class Level:
    """Where a path stands in one of the sequences that it is in."""

    path: str
    sequence: Sequence
    position: int
    #: Of the loop that it is, if it goes on in one of its turns.
    iteration: int | None


class Downstream:
    def __init__(self, plan: Plan, steps: Iterable[str]) -> None:
        self._plan = plan
        #: From which position on a sequence goes; half a position after a composite that stays itself.
        self._from: dict[Sequence, float] = {}
        #: The last turn of a loop that stays, in part.
        self._iterations: dict[str, int] = {}
        #: The composites and items around the steps.
        self.around: set[str] = set()
        given = tuple(dict.fromkeys(steps))
        for path in given:
            self._begin_at(path)
        #: Those that do not come after another one.
        self.earliest = tuple(path for path in given if not self._is_after_another(path))

    def __contains__(self, row: str) -> bool:
        base, role = paths.role_of(row)
        if role == HANDLER[1:] and (not base or base in self.around):
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
        """Or what is asked when the turn in which a step is has ended."""
        if level.iteration is None or level.path not in self._iterations:
            return False
        return level.iteration >= self._iterations[level.path] + (not asked)

    def _levels(self, path: str) -> Iterator[Level]:
        """From the top down, as far as the plan goes: what a flow does is not part of it."""
        parts = path.split("/")
        for depth in range(1, len(parts) + 1):
            here, iteration = paths.iteration_of("/".join(parts[:depth]))
            place = self._plan.places.get(paths.place_of(here))
            if place is None:
                return
            yield Level(here, (paths.scope_of(here), place.body[0].name), place.position, iteration)

    def _is_loop(self, path: str) -> bool:
        return isinstance(self._plan.place(path).node, LoopNode)
