"""What steps are made to do in a lab: another function, failures, crashes, time. By name or path, and in the order in
which it was said.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from rival_workers.definition.inject import COMPENSATION_NAMES, IN_ITEM, Injection, injection
from rival_workers.definition.workflow import WorkflowDefinition
from rival_workers.engine.paths import place_of
from rival_workers.runtime.attempt.context import Context
from rival_workers.runtime.flow.signals import Killed
from rival_workers.testing.errors import LabError

#: A replacement may ask for whatever any step may.
ANY_NAMES = tuple(dict.fromkeys((*COMPENSATION_NAMES, *IN_ITEM)))

#: Calls the step's function.
Go = Callable[[], Any]


class Crash(Killed):
    """The worker dies here. It goes the way of a process's own end: no outcome comes of it, nothing is committed."""


@dataclass(frozen=True)
class Where:
    """The steps that are meant: a name (`pack`), the end of a path (`payment/charge`), with the number of one turn
    (`lines[3]/pack`) or for all of them (`lines[]/pack`).
    """

    step: str
    workflow: str | None = None

    def means(self, workflow: str, path: str) -> bool:
        its = self.workflow in (None, workflow)
        return its and (ends_with(path, self.step) or ends_with(place_of(path), self.step))

    def is_in(self, workflow: WorkflowDefinition) -> bool:
        its = self.workflow in (None, workflow.name)
        return its and any(ends_with(place, place_of(self.step)) for place in workflow.calls)


def ends_with(path: str, end: str) -> bool:
    return path == end or path.endswith(f"/{end}")


@dataclass
class Happening:
    """Something that befalls a step: the first `times` attempts of each step in each run, or all of them."""

    where: Where
    #: What becomes of the attempt; it is given the way to call the function.
    what: Callable[[Go], Any]
    times: int | None
    _had: Counter[tuple[str, str]] = field(default_factory=Counter)

    def befalls(self, context: Context) -> bool:
        run = context.run
        if not self.where.means(run.workflow, run.step):
            return False
        self._had[run.run_id, run.step] += 1
        return self.times is None or self._had[run.run_id, run.step] <= self.times


class Script:
    def __init__(self) -> None:
        self._functions: list[tuple[Where, Injection]] = []
        #: Which of these befalls an attempt is asked for each list by itself: a slow attempt may also fail.
        self._slow: list[Happening] = []
        self._ends: list[Happening] = []

    # -- saying what happens ------------------------------------------------------------------------------

    def replace(self, where: Where, function: Callable[..., Any]) -> None:
        try:
            self._functions.append((where, injection(function, ANY_NAMES)))
        except ValueError as error:
            raise LabError(f"The replacement of step {where.step!r}: {error}") from error

    def takes_time(self, where: Where, what: Callable[[Go], Any], times: int | None) -> None:
        self._slow.append(Happening(where, what, _checked(times, where)))

    def ends(self, where: Where, what: Callable[[Go], Any], times: int | None) -> None:
        self._ends.append(Happening(where, what, _checked(times, where)))

    def check(self, workflows: Iterable[WorkflowDefinition]) -> None:
        """A name that no step has is a mistake in the test."""
        known = list(workflows)
        said = [where for where, _ in self._functions] + [one.where for one in (*self._slow, *self._ends)]
        for where in said:
            if not any(where.is_in(workflow) for workflow in known):
                raise LabError(_unknown(where, known))

    # -- playing it ---------------------------------------------------------------------------------------

    def play(self, real: Injection, context: Context) -> Any:
        """One attempt: it takes its time; then it fails, or dies, or the function is called."""
        run = context.run
        # What was said last about a step holds.
        own = (its for where, its in reversed(self._functions) if where.means(run.workflow, run.step))
        chosen = next(own, real)
        go = _befallen(self._ends, context, lambda: chosen.call(context))
        return _befallen(self._slow, context, go)()


def _befallen(happenings: list[Happening], context: Context, go: Go) -> Go:
    happening = next((one for one in happenings if one.befalls(context)), None)
    return go if happening is None else lambda: happening.what(go)


def _checked(times: int | None, where: Where) -> int | None:
    if times is not None and times < 1:
        raise LabError(f"Step {where.step!r}: times={times} is never. Give 1 or more, or None for always.")
    return times


def _unknown(where: Where, known: list[WorkflowDefinition]) -> str:
    of = f" of workflow {where.workflow!r}" if where.workflow else ""
    steps = ", ".join(f"{workflow.name}: {', '.join(workflow.calls)}" for workflow in known) or "none is registered"
    return f"There is no step {where.step!r}{of} in this lab. Its steps are: {steps}."
