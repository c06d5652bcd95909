"""Runs, steps and attempts as plain values: what clients see of the tables."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, field
from typing import Any, Literal

from rival_client.errors import RunCancelled, RunFailed
from rival_client.model import statuses
from rival_client.model.kinds import COMPOSITE_KINDS, COMPOSITES, waits_for
from rival_client.model.statuses import RUN_TERMINAL, RunStatus, StepStatus


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
class Attempt:
    """An attempt that did not simply succeed the first time."""

    path: str
    attempt: int
    outcome: str
    error: dict[str, Any] | None
    executor: str | None
    started_at: dt.datetime | None
    ended_at: dt.datetime
    #: What rules of the run or of the fleet had changed of the step's options.
    policy: dict[str, Any] | None = None


@dataclass(frozen=True)
class LastError:
    """The last error a step has had, also when a later attempt succeeded."""

    type: str
    message: str
    attempt: int
    at: dt.datetime


@dataclass(frozen=True)
class Step:
    path: str
    kind: str
    status: StepStatus
    attempts: int
    lost: int
    result: Any
    state: dict[str, Any]
    error: dict[str, Any] | None
    executor: str | None
    parked: str | None
    due_at: dt.datetime | None
    timeout_at: dt.datetime | None
    created_at: dt.datetime
    started_at: dt.datetime | None
    completed_at: dt.datetime | None
    #: A composite's lanes: how many there are, how many have begun, how many have not ended.
    total: int | None = None
    opened: int | None = None
    remaining: int | None = None
    #: The item of one iteration of a for_each.
    item: Any = None
    #: Last heartbeat and progress, of steps that report them.
    heartbeat_at: dt.datetime | None = None
    progress: Any = None
    #: What it did instead of failing: its `shape` (value, retry_with, function), `overrides`, and the `error`.
    fallback: dict[str, Any] | None = None
    #: Whose workers run it (None: those of the fleet's own queue), and its priority (None: that of the run).
    queue: str | None = None
    priority: str | None = None
    #: When its first attempt must have begun, and when the step must have ended.
    start_by: dt.datetime | None = None
    deadline_at: dt.datetime | None = None
    #: What rules of the run or of the fleet have changed of its options, in its last attempt.
    policy: dict[str, Any] | None = None
    #: Only in a `RunState`: it is read from the attempts.
    last_error: LastError | None = None

    @property
    def is_composite(self) -> bool:
        """Its row waits until the steps below it have ended."""
        return self.kind in COMPOSITE_KINDS

    @property
    def waits_for_external(self) -> bool:
        """An external system completes it, by `timeout_at` if there is a deadline."""
        return waits_for(self.kind) == "external" and self.status == statuses.WAITING

    @property
    def description(self) -> str | None:
        return self.state.get("description")

    @property
    def retry_count(self) -> int:
        """Starts after the first one that used up an attempt."""
        return max(0, self.attempts - 1)

    @property
    def queue_time(self) -> float | None:
        """Seconds that the last start waited for a worker, from when it was due: a backoff or a delay does not
        count."""
        if self.started_at is None or self.status in (statuses.PENDING, statuses.WAITING_RETRY):
            return None
        ready = self.created_at if self.due_at is None else max(self.created_at, self.due_at)
        return max(0.0, (self.started_at - ready).total_seconds())

    @property
    def duration(self) -> float | None:
        """Seconds of the last attempt."""
        if self.started_at is None or self.completed_at is None:
            return None
        return (self.completed_at - self.started_at).total_seconds()


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
class HistoryEntry:
    at: dt.datetime
    what: str
    path: str | None
    detail: dict[str, Any]
    #: Who or what did it: an executor, an operator, another run, an event, the keeper.
    by: str | None = None
    #: Its place in the history: give the last one's as `after` to read what follows it.
    id: int = field(default=0, compare=False)


@dataclass(frozen=True)
class LogEntry:
    at: dt.datetime
    level: str
    path: str
    attempt: int
    message: str
    fields: dict[str, Any]
    #: Its place in the run's log: give the last one's as `after` to go on from there.
    id: int = 0


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
            message = (self.error or {}).get("message", "unknown error")
            raise RunFailed(self.run_id, self.workflow, self.failed_step, message)
        return self.result


@dataclass(frozen=True)
class WorkflowInfo:
    """A registered workflow, at the version that new runs take."""

    name: str
    version: str
    description: str | None
    input_schema: dict[str, Any] | None
    plan: dict[str, Any]
    registered_at: dt.datetime
    #: The options of its steps, and the rules of its policies.
    policies: dict[str, Any] | None = None
    #: Of its runs: the queue of their start (None: the fleet's own) and their priority (None: normal).
    queue: str | None = None
    priority: str | None = None

    @property
    def step_count(self) -> int:
        """The steps that the plan names, at any depth; those of a loop or for_each count once."""
        return _leaves(self.plan.get("nodes", []))


def _leaves(value: Any) -> int:
    """Nodes that consist of no others, among all that a plan's JSON holds."""
    if isinstance(value, list):
        return sum(_leaves(inner) for inner in value)
    if not isinstance(value, dict) or "name" not in value:
        return 0
    if value.get("type", "step") in COMPOSITES:
        return sum(_leaves(inner) for inner in value.values() if isinstance(inner, list))
    return 1
