"""What a definition says about whole runs: schedule, retention, limits, hooks, queue and priority."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rival_client.model.limits.limits import Limit
from rival_client.model.starts.planned_schedules import Planned
from rival_client.model.starts.priorities import Priority
from rival_workers.engine.policy_document import OnCancel


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
