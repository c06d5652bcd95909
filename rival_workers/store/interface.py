"""What a store can do: one named, atomic operation per transition. Every backend passes the same contract suite.

Each operation that moves something takes what its caller holds (run, path, token), compares it in the WHERE, and
says with None or False that it was stale. None of them runs user code, rings a bell or reads a clock of its own.
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
    """What a transition's caller claims to hold."""

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
    """An attempt that is now this executor's, with what it needs."""

    run_id: str
    path: str
    token: int
    timeout_token: int
    attempt: int
    lost: int
    input: Any
    kind: str = STEP
    #: What the row is about, if the claim has brought it along.
    item: Any = None


@dataclass(frozen=True)
class FinishResult:
    """What a commit has brought about: the step that the committer goes on with, those it must ring for, the end."""

    claimed: OpenRow | None = None
    opened: tuple[OpenRow, ...] = ()
    run_ended: bool = False
    #: A flow of another run that has waited for this one.
    ready: ReadyStep | None = None
    #: What the rows have begun with that were opened; more than 0 once an operator has opened the run again.
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
    """A claim that came too early, and by how much."""

    seconds: float


@dataclass(frozen=True)
class ClaimBy:
    """An executor that goes on with what it wakes, and the workflows (name and version) that it knows."""

    executor: str
    workflows: Collection[tuple[str, str]]


@dataclass(frozen=True)
class Delivered:
    """What an event has brought about: the steps that its deliverer must ring for, or the one that is its own now."""

    ready: tuple[ReadyStep, ...] = ()
    claimed: Claimed | None = None
    workflow: str = ""
    version: str = ""


@dataclass(frozen=True)
class Due:
    """A row whose time has come. `path` None: a run that nobody has begun."""

    run_id: str
    path: str | None
    status: str
    token: int
    timeout_token: int
    attempts: int
    lost: int
    #: How often the keeper has looked at it before; NEVER_PUBLISHED: no message was published for it.
    rings: int
    workflow: str
    version: str
    kind: str
    #: Seconds until the step may start.
    due_in: float


@dataclass(frozen=True)
class DueEvent:
    """An event that nobody has looked at. `rings` as of any row that is due."""

    id: str
    topic: str
    rings: int


@dataclass(frozen=True)
class RunningAttempt:
    """An attempt as the table has it: for those who must judge it from outside."""

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
    """What the keeper does with what is due."""

    limit: int
    #: Seconds until the next look at a row after its first, second, … ring.
    backoff: float
    backoff_max: float


@dataclass(frozen=True)
class BeatResult:
    """A sign of life that counts, and how many seconds the attempt has from now on."""

    left: float | None


class Store(Protocol):
    database: Database

    # -- definitions
    def register_workflow(
        self, name: str, plan: Plan, input_schema: dict[str, Any] | None, description: str | None,
        retention: float | None = None,
    ) -> None: ...  # fmt: skip
    def load_workflow(self, name: str, version: str) -> WorkflowInfo | None: ...

    # -- moving a run
    # `of`: only if the run's row names this workflow and version. None: the caller has read them from the row.
    def begin_run(
        self, run_id: str, token: int, advance: Advance, *, claim_for: str | None, of: WorkflowVersion | None = None
    ) -> BeginResult | WorkflowVersion | None: ...
    def claim_step(
        self, claim: Claim, timeout: float | None, executor: str, *, of: WorkflowVersion | None = None,
        within: float | None = None,
    ) -> Claimed | NotYet | WorkflowVersion | None: ...  # fmt: skip
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
    def due(self, look: SweepOptions) -> list[Due]: ...
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
    def due_events(self, look: SweepOptions) -> list[DueEvent]: ...
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

    # -- external steps and signs of life
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
