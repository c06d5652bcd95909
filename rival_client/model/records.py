"""Runs, their state and their results as plain values: what clients see of the tables."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, field
from typing import Any, Literal

from rival_client.errors import RunCancelled, RunFailed
from rival_client.model import statuses
from rival_client.model.statuses import RUN_TERMINAL, RunStatus
from rival_client.model.step_records import Attempt, Step


@dataclass(frozen=True)
class Reopened:
    """What a retry or rewind has opened, or would open: the steps that begin now, and all that had begun and runs
    again when the run comes to it. `children`: the runs that these steps had started. The open ones are cancelled, and
    the steps start new ones. `retried_children`: spawned runs that are retried with this one.
    """

    run_id: str
    opened: tuple[str, ...]
    runs_again: tuple[str, ...]
    children: tuple[str, ...] = ()
    retried_children: tuple[str, ...] = ()


@dataclass(frozen=True)
class Run:
    """One execution of a workflow, without its steps."""

    run_id: str
    workflow: str
    version: str
    status: RunStatus
    input: Any
    result: Any
    error: dict[str, Any] | None
    failed_step: str | None
    parked: str | None
    created_at: dt.datetime
    started_at: dt.datetime | None
    completed_at: dt.datetime | None
    #: The parent: the run, and its step that has started this run.
    parent_run_id: str | None = None
    parent_path: str | None = None
    #: Since when it is paused.
    paused_at: dt.datetime | None = field(default=None, kw_only=True)
    #: It does not begin before this; it must have ended by then.
    due_at: dt.datetime | None = field(default=None, kw_only=True)
    deadline_at: dt.datetime | None = field(default=None, kw_only=True)
    #: No other open run of the workflow has it.
    singleton: str | None = field(default=None, kw_only=True)
    #: How many starts have become part of it, of a run that gathers them.
    gathered: int | None = field(default=None, kw_only=True)
    #: Names with a text each, by which runs are found.
    labels: dict[str, str] | None = field(default=None, kw_only=True)
    #: The queue of its start (None: the fleet's own), and which runs workers start first.
    queue: str | None = field(default=None, kw_only=True)
    priority: str = field(default="normal", kw_only=True)
    #: The rules for its steps that it was started with.
    policies: dict[str, Any] | None = field(default=None, kw_only=True)

    @property
    def is_paused(self) -> bool:
        """It starts nothing new. A run that has ended is not paused."""
        return self.paused_at is not None and not self.is_terminal

    @property
    def is_terminal(self) -> bool:
        return self.status in RUN_TERMINAL


@dataclass(frozen=True)
class RunState(Run):
    """A run with its steps, in the order they were reached."""

    steps: list[Step] = field(default_factory=list)
    attempts: list[Attempt] = field(default_factory=list)
    #: Composite -> status -> the number of its iterations that are left out of the steps; only with `fold`.
    folded: dict[str, dict[str, int]] = field(default_factory=dict)

    @property
    def current_step(self) -> str | None:
        """The first open step. A composite is open while its steps are: it is only named when none of those is seen."""
        open_steps = [step for step in self.steps if step.completed_at is None]
        open_steps.sort(key=lambda step: step.is_composite)
        return open_steps[0].path if open_steps else None


@dataclass(frozen=True)
class RunResult:
    """How a run ended."""

    run_id: str
    workflow: str
    status: Literal["completed", "failed", "cancelled"]
    #: The last step's result.
    result: Any
    #: Step name -> its result.
    results: dict[str, Any]
    error: dict[str, Any] | None
    failed_step: str | None

    def unwrap(self) -> Any:
        """The result; RunFailed or RunCancelled when there is none."""
        if self.status == statuses.CANCELLED:
            raise RunCancelled(self.run_id, self.workflow)
        if self.status == statuses.FAILED:
            raise RunFailed(self.run_id, self.workflow, self.failed_step, self.error or {})
        return self.result
