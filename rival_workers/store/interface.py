"""The interface of a store: one named, atomic operation per transition. Every backend passes the same contract suite.

An operation that changes a row takes the caller's claim (run, path, token), compares it in the WHERE, and returns None
or False if it is stale. No operation runs user code, publishes a message or reads a clock other than the database's.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from rival_client.db.database import Database
from rival_client.model.cron import Planned
from rival_client.model.kinds import STEP
from rival_client.model.payload import Json
from rival_client.model.records import LogEntry, Step, WorkflowInfo
from rival_client.sql.wake import ReadyStep
from rival_workers.engine.decisions import End, Retry
from rival_workers.engine.effects import Advance, OpenRow
from rival_workers.engine.heartbeat_limits import HeartbeatState
from rival_workers.engine.plan import Plan, StepConfig
from rival_workers.engine.replay import CheckpointRef, CheckpointWrite
from rival_workers.store.flow_records import ChildRun, FlowCommit, FlowProgress, SpawnedChild, StoredFlow

ReleaseReason = Literal["lost", "handed_back"]


@dataclass(frozen=True)
class Claim:
    """The row and the token that the caller of a transition holds."""

    run_id: str
    path: str
    token: int
    guard: Literal["execution_token", "timeout_token"] = "execution_token"


@dataclass(frozen=True)
class WorkflowVersion:
    """The workflow that a message names. A message is untrusted: the run's row must name the same."""

    workflow: str
    version: str


@dataclass(frozen=True)
class Claimed:
    """An attempt that this executor has claimed, with what it needs to run it."""

    run_id: str
    path: str
    token: int
    timeout_token: int
    attempt: int
    lost: int
    input: Any
    kind: str = STEP
    #: The item of the row, if the claim has read it.
    item: Any = None


@dataclass(frozen=True)
class FinishResult:
    """What follows from a commit: the step that the committer runs next, the steps that need a message, the end."""

    claimed: OpenRow | None = None
    opened: tuple[OpenRow, ...] = ()
    run_ended: bool = False
    #: The flow of the parent run, if it waited for this run.
    ready: ReadyStep | None = None
    #: The token of the opened rows; more than 0 once an operator has reopened the run.
    token: int = 0
    #: The status that the run has ended with, where it is known: not after the fast statements, which only complete.
    ended_as: str | None = None

    def token_of(self, opening: OpenRow) -> int:
        return self.token if opening.token is None else opening.token


@dataclass(frozen=True)
class BeginResult:
    """A run that has started."""

    input: Any
    finished: FinishResult


@dataclass(frozen=True)
class Fired:
    """A run that a schedule has started."""

    run_id: str
    workflow: str
    version: str


@dataclass(frozen=True)
class NotYet:
    """A claim before the step is due, and the seconds that are left."""

    seconds: float


@dataclass(frozen=True)
class ClaimBy:
    """An executor that claims the step it makes ready, and the workflows (name and version) that it knows."""

    executor: str
    workflows: Collection[tuple[str, str]]


@dataclass(frozen=True)
class Delivered:
    """What follows from an event: the steps that need a message, or the one step that the deliverer has claimed."""

    ready: tuple[ReadyStep, ...] = ()
    claimed: Claimed | None = None
    workflow: str = ""
    version: str = ""


@dataclass(frozen=True)
class Due:
    """A row that is due. `path` None: a run that has not begun."""

    run_id: str
    path: str | None
    status: str
    token: int
    timeout_token: int
    attempts: int
    lost: int
    #: How often the keeper has found it due before; NEVER_PUBLISHED: no message was published for it.
    rings: int
    workflow: str
    version: str
    kind: str
    #: Seconds until the step may start.
    due_in: float


@dataclass(frozen=True)
class DueEvent:
    """An event that no worker has delivered yet. `rings`: as of any row that is due."""

    id: str
    topic: str
    rings: int


@dataclass(frozen=True)
class RunningAttempt:
    """An attempt as stored, for code that does not run it: the keeper, a revoke."""

    claim: Claim
    attempts: int
    lost: int
    executor: str
    workflow: str
    version: str
    kind: str


@dataclass(frozen=True)
class NamedAttempt:
    """An unfinished step that a task id names. `attempts`: how many have begun; `executor`: of the last one."""

    claim: Claim
    status: str
    attempts: int
    lost: int
    executor: str | None
    workflow: str
    version: str
    kind: str

    def running(self, claim: Claim) -> RunningAttempt:
        """Under the token of its claim."""
        number = self.attempts + (self.status != "running")
        return RunningAttempt(claim, number, self.lost, self.executor or "", self.workflow, self.version, self.kind)


@dataclass(frozen=True)
class ExecutorRow:
    id: str
    pid: int
    worker: str


@dataclass(frozen=True)
class SweepOptions:
    """How many due rows the keeper takes at once, and when they are due again."""

    limit: int
    #: Seconds until a row is due again after its first message; doubled with each further one, up to the maximum.
    backoff: float
    backoff_max: float


@dataclass(frozen=True)
class BeatResult:
    """A heartbeat that was accepted, and the seconds until the attempt times out."""

    left: float | None


class Store(Protocol):
    database: Database

    # -- definitions
    def register_workflow(
        self,
        name: str,
        plan: Plan,
        input_schema: dict[str, Any] | None,
        description: str | None,
        retention: float | None = None,
    ) -> None: ...
    def load_workflow(self, name: str, version: str) -> WorkflowInfo | None: ...

    # -- moving a run
    # `of`: only if the run's row names this workflow and version. None: the caller has read them from the row.
    def begin_run(
        self, run_id: str, token: int, advance: Advance, *, claim_for: str | None, of: WorkflowVersion | None = None
    ) -> BeginResult | WorkflowVersion | None: ...
    def claim_step(
        self,
        claim: Claim,
        timeout: float | None,
        executor: str,
        *,
        of: WorkflowVersion | None = None,
        within: float | None = None,
    ) -> Claimed | NotYet | WorkflowVersion | None: ...
    def finish_step(
        self, claim: Claim, end: End, advance: Advance, *, claim_for: str | None
    ) -> FinishResult | None: ...
    def retry_step(self, claim: Claim, retry: Retry, *, rung: bool) -> int | None: ...
    def release_step(self, claim: Claim, reason: ReleaseReason) -> int | None: ...
    def park(
        self, run_id: str, path: str | None, token: int, reason: str, delay: float, *, of: WorkflowVersion | None = None
    ) -> bool | WorkflowVersion: ...

    # -- revoking
    def attempts_named(self, places: Sequence[tuple[str, str]]) -> list[NamedAttempt]: ...
    def cancel_unbegun(self, run_id: str, by: str) -> tuple[bool, ReadyStep | None]: ...

    # -- reading, for attempts
    def read_step(self, run_id: str, path: str) -> Step | None: ...
    def read_item(self, run_id: str, path: str) -> Any: ...
    def failure_of(self, run_id: str) -> tuple[str | None, dict[str, Any] | None]: ...
    def token_of(self, run_id: str, path: str) -> tuple[str, int, str | None] | None: ...
    def running_on(self, executor: str) -> list[RunningAttempt]: ...

    # -- keeping
    def due(self, options: SweepOptions) -> list[Due]: ...
    def next_look(self) -> float | None: ...
    def dead_executors(self) -> list[str]: ...
    def lost_attempts(
        self, dead: Sequence[str], limit: int, after: tuple[str, str] | None = None
    ) -> list[RunningAttempt]: ...
    def stray_attempts(self, limit: int, after: tuple[str, str] | None = None) -> list[RunningAttempt]: ...
    def ring_all(self, within: float, limit: int) -> int: ...
    def retentions(self, default: float) -> list[tuple[str, float]]: ...
    def delete_ended_before(self, age: float, limit: int, workflow: str) -> int: ...
    def orphans(self, limit: int, after: str = "") -> list[tuple[str, str]]: ...
    def cancel_orphan(self, run_id: str, by: str) -> bool: ...

    # -- schedules
    def keep_schedule(self, workflow: str, planned: Planned | None) -> None: ...
    def fire_schedules(self, limit: int) -> list[Fired]: ...

    # -- events
    def deliver_event(self, event_id: str, claim: ClaimBy | None = None) -> Delivered: ...
    def due_events(self, options: SweepOptions) -> list[DueEvent]: ...
    def delete_expired_events(self, limit: int) -> int: ...

    # -- flows
    def read_checkpoints(self, run_id: str, flow: str) -> StoredFlow: ...
    def flow_began_at(self, claim: Claim) -> float: ...
    def record_checkpoint(self, claim: Claim, write: CheckpointWrite, state: Json | None = None) -> float | None: ...
    def suspend_step(
        self, claim: Claim, write: CheckpointWrite | None, seconds: float | None, state: Json | None = None
    ) -> int | None: ...
    def commit_flow(self, claim: Claim, commit: FlowCommit) -> FlowProgress | None: ...
    def spawn_child(
        self, claim: Claim, ref: CheckpointRef, child: ChildRun, state: Json | None = None
    ) -> SpawnedChild | None: ...
    def started_run(self, run_id: str) -> tuple[int, str, str] | None: ...
    def continue_flow(self, claim: Claim, its_input: Json, state: Json | None = None) -> int | None: ...

    # -- external steps and heartbeats
    def suspend_outside(self, claim: Claim, attempt: int, config: StepConfig, state: Json | None) -> int | None: ...
    def beat_step(self, claim: Claim, config: StepConfig, progress: Json | None) -> BeatResult | None: ...
    def pulse_of(self, run_id: str, path: str) -> HeartbeatState | None: ...

    # -- executors
    def add_executor(self, executor: str, host: str, pid: int, worker: str, lease: float) -> None: ...
    def beat(self, executor: str, lease: float, problem: str | None = None) -> bool: ...
    def adopt_attempts(self, executor: str, successor: str) -> int: ...
    def executors_on(self, host: str) -> list[ExecutorRow]: ...
    def expire_executors(self, host: str, pid: int) -> int: ...
    def forget_executors(self, dead: Sequence[str]) -> None: ...

    # -- logs and history
    def append_logs(self, run_id: str, entries: Sequence[LogEntry], again: bool = False) -> None: ...
    def record(self, run_id: str, path: str | None, what: str, by: str | None, **detail: Any) -> None: ...

    def close(self) -> None: ...
