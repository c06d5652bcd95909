"""The settings of a definition for whole runs, and their checks: schedule, retention, limits, hooks, queue and
priority."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rival_client.model.limits.given_limits import read_run_limits
from rival_client.model.limits.limits import Limit
from rival_client.model.policies.policy_options import seconds, unknown_options
from rival_client.model.starts.planned_schedules import Planned
from rival_client.model.starts.priorities import LEVELS, Priority
from rival_client.model.starts.queues import QUEUE_EXPECTED, is_queue
from rival_workers.definition.given_steps import OPTIONS
from rival_workers.definition.hooks import read_hooks
from rival_workers.definition.misplaced_options import not_of_workflow
from rival_workers.definition.options import WorkflowOptions
from rival_workers.definition.schedules import planned_schedule
from rival_workers.engine.policy_document import OnCancel

#: The parameters of a workflow in code beside `WorkflowOptions`.
_OWN_OPTIONS = ("input", "description", "on_error", "policies")


@dataclass(frozen=True)
class WholeRun:
    """What a definition says about its runs as a whole. Not part of the plan: another schedule is not another
    version."""

    #: When runs start by schedule.
    schedule: Planned | None = None
    #: Seconds for which ended runs are kept; 0: for ever; None: the setting of the workers.
    retention: float | None = None
    #: How many runs at once, and how many starts of runs per time.
    limits: Sequence[Limit] = ()
    #: Functions that a worker calls around attempts.
    hooks: Mapping[str, Any] = field(default_factory=dict)
    #: Of all steps, unless they have their own. A start can give its run another priority.
    queue: str | None = None
    priority: Priority | None = None
    #: A cancelled run is undone like a failed one.
    compensate_on_cancel: bool = False

    @property
    def on_cancel(self) -> OnCancel | None:
        """What workers do when a run is cancelled. None: the cancel itself ends the run."""
        if self.compensate_on_cancel:
            return "compensate"
        return "hooks" if "on_cancel" in self.hooks else None

    @property
    def route(self) -> dict[str, Any]:
        """The options of its steps that follow from it. Its runs have its priority, if it is not nested."""
        given = {"queue": self.queue, "priority": self.priority}
        return {name: value for name, value in given.items() if value is not None}


def read_whole_run(
    name: str, read_input: Callable[[Any], Any] | None, given: WorkflowOptions, problems: list[str]
) -> WholeRun:
    """`read_input` checks the input of a schedule; None: the definition has no type that could check it."""
    problems += unknown_workflow_options(given)
    retention = seconds(given.get("retention"))
    if retention is not None and not _is_duration(retention):
        problems.append(f"retention: give seconds or a timedelta (0: for ever), not {retention!r}")
    queue, priority = given.get("queue"), given.get("priority")
    if queue is not None and not is_queue(queue):
        problems.append(f"queue: give {QUEUE_EXPECTED}, not {queue!r}")
    if priority is not None and (not isinstance(priority, str) or priority not in LEVELS):
        problems.append(f"priority: give one of {', '.join(LEVELS)}, not {priority!r}")
    limits = read_run_limits(given.get("concurrency_limit"), given.get("rate_limit"), problems)
    planned = planned_schedule(given.get("schedule"), name, read_input, problems)
    undo = given.get("compensate_on_cancel") or False
    if not isinstance(undo, bool):
        problems.append(f"compensate_on_cancel: give True or False, not {undo!r}")
    return WholeRun(planned, retention, limits, read_hooks(given.get("hooks"), problems), queue, priority, undo)


def unknown_workflow_options(given: Mapping[str, Any]) -> list[str]:
    known = (*_OWN_OPTIONS, *WorkflowOptions.__annotations__)
    steps = [key for key in given if key not in known and key in OPTIONS]
    others = {key: given[key] for key in given if key not in steps}
    return [*map(not_of_workflow, steps), *unknown_options(others, known)]


def _is_duration(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < math.inf
