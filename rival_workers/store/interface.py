"""The interface of a store: one named, atomic operation per transition. Every backend passes the same contract suite.

An operation that changes a row takes the caller's claim (run, path, token), compares it in the WHERE, and returns None
or False if it is stale. No operation runs user code, publishes a message or reads a clock other than the database's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from rival_client.broker.message import StepMessage
from rival_client.db.database import Database
from rival_client.model.limits.limits import Limit
from rival_client.model.payload import Json
from rival_client.model.policies.breakers import Breaker, BreakerState
from rival_client.model.policies.rulebook import Rulebook
from rival_client.model.policies.step_config import StepConfig
from rival_client.model.run_entries import LogEntry
from rival_client.model.starts.planned_schedules import Planned
from rival_client.model.starts.priorities import Priority
from rival_client.model.step_records import Step
from rival_client.model.workflow_info import WorkflowInfo
from rival_client.sql.gates import Grant
from rival_client.sql.wake import ReadyStep
from rival_workers.engine.decisions import End, FallBack, Retry
from rival_workers.engine.effects import Advance
from rival_workers.engine.heartbeat_limits import HeartbeatState
from rival_workers.engine.plan import Plan
from rival_workers.engine.policies import NO_POLICIES, PolicyDocument
from rival_workers.engine.replay import CheckpointRef, CheckpointWrite
from rival_workers.store.call_records import BreakerAnswer, KeyAnswer, KeyClaim
from rival_workers.store.claim_records import (
    BeatResult,
    Begun,
    BudgetSpent,
    Claim,
    ClaimBy,
    Claimed,
    Delivered,
    FinishResult,
    NotYet,
    Queued,
    RunFacts,
    Successor,
    Without,
    WorkflowVersion,
)
from rival_workers.store.flow_records import (
    ChildRun,
    ContinuedFlow,
    FlowClaim,
    FlowCommit,
    FlowProgress,
    SpawnedChild,
    StoredFlow,
)
from rival_workers.store.group_commits import Commit
from rival_workers.store.sweep_records import (
    Due,
    DueEvent,
    ExecutorRow,
    Fired,
    NamedAttempt,
    RunningAttempt,
    SweepOptions,
)


class Store(Protocol):
    database: Database
    #: Publishes the messages of granted tickets.
    on_grants: Callable[[Sequence[Grant]], None] | None

    # -- definitions
    def register_workflow(
        self,
        name: str,
        plan: Plan,
        input_schema: dict[str, Any] | None,
        description: str | None,
        retention: float | None = None,
        policies: PolicyDocument = NO_POLICIES,
        limits: Sequence[Limit] = (),
        queue: str | None = None,
        priority: Priority | None = None,
    ) -> None: ...
    def load_workflow(self, name: str, version: str) -> WorkflowInfo | None: ...

    # -- moving a run
    def can_group(self, commit: Commit) -> bool: ...
    def may_wait(self, commit: Commit) -> bool: ...
    def commit_group(self, commits: Sequence[Commit]) -> list[Any]: ...
    # `of`: apply only if the run's row has this workflow and version. None: the caller has read them from the row.
    def begin_run(
        self,
        run_id: str,
        token: int,
        advance: Advance,
        *,
        claim_for: str | None,
        of: WorkflowVersion | None = None,
        limits: Sequence[Limit] = (),
        without: Without | None = None,
    ) -> Begun: ...
    def expire_run(self, run_id: str, advance: Advance) -> FinishResult | None: ...
    def claim_step(
        self,
        claim: Claim,
        timeout: float | None,
        executor: str,
        *,
        of: WorkflowVersion | None = None,
        within: float | None = None,
        limits: Sequence[Limit] = (),
        policy: str | None = None,
    ) -> Claimed | NotYet | Queued | WorkflowVersion | None: ...
    def finish_step(
        self,
        claim: Claim,
        end: End | FallBack,
        advance: Advance,
        *,
        claim_for: str | None,
        successor: Successor | None = None,
    ) -> FinishResult | None: ...
    def retry_step(self, claim: Claim, retry: Retry, *, rung: bool) -> int | BudgetSpent | None: ...
    def take_over_step(self, claim: Claim) -> int | None: ...
    def hand_back_step(self, claim: Claim) -> int | None: ...
    def park_run(
        self, run_id: str, token: int, reason: str, delay: float, *, of: WorkflowVersion | None = None
    ) -> bool | WorkflowVersion: ...
    def park_step(
        self, claim: Claim, reason: str, delay: float, *, of: WorkflowVersion | None = None
    ) -> bool | WorkflowVersion: ...

    def postpone_step(self, claim: Claim, seconds: float, breaker: str, *, rung: bool) -> int | None: ...

    # -- circuit breakers
    def ask_breaker(self, breaker: Breaker, claim: Claim, executor: str) -> BreakerAnswer: ...
    def breaker_succeeded(self, breaker: Breaker, claim: Claim, executor: str) -> BreakerState | None: ...
    def breaker_failed(self, breaker: Breaker, claim: Claim, executor: str) -> BreakerState | None: ...

    # -- idempotency keys
    def own_key(self, claim: Claim, wanted: KeyClaim) -> KeyAnswer | None: ...
    def delete_expired_keys(self, limit: int) -> int: ...

    # -- revoking
    def attempts_named(self, places: Sequence[tuple[str, str]]) -> list[NamedAttempt]: ...
    def cancel_unbegun(self, run_id: str, by: str) -> tuple[bool, ReadyStep | None]: ...

    def apply_policy(self, claim: Claim, timeout: float | None, policy: str | None) -> bool: ...

    # -- rules
    #: The version of the fleet's rules that `due` read last.
    rules_version: int

    def read_rulebook(self) -> Rulebook: ...
    def read_run_rules(self, run_id: str) -> tuple[dict[str, Any] | None, dict[str, str] | None]: ...

    # -- reading, for attempts
    def read_step(self, run_id: str, path: str) -> Step | None: ...
    def read_item(self, run_id: str, path: str) -> Any: ...
    def retries_of(self, run_id: str) -> int: ...
    def has_fallen_back(self, run_id: str, path: str) -> bool: ...
    def failure_of(self, run_id: str) -> tuple[str | None, dict[str, Any] | None]: ...
    def read_start(self, claim: Claim, of: WorkflowVersion | None) -> tuple[Any, RunFacts] | None: ...
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

    # -- limits
    def sweep_gates(self, limit: int) -> list[Grant]: ...
    def look_again(self, gates: Sequence[int]) -> tuple[Grant, ...]: ...

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
    def started_run(self, run_id: str) -> StepMessage | None: ...
    def continue_flow(
        self, claim: Claim, its_input: Json, state: Json | None = None, claim_by: FlowClaim | None = None
    ) -> ContinuedFlow | None: ...

    # -- external steps and heartbeats
    def suspend_external_step(
        self, claim: Claim, attempt: int, config: StepConfig, state: Json | None
    ) -> int | None: ...
    def beat_step(self, claim: Claim, config: StepConfig, progress: Json | None) -> BeatResult | None: ...
    def pulse_of(self, run_id: str, path: str) -> HeartbeatState | None: ...

    # -- executors
    def add_executor(
        self, executor: str, host: str, pid: int, worker: str, lease: float, queues: Sequence[str] | None = None
    ) -> None: ...
    def beat(self, executor: str, lease: float, problem: str | None = None, **about: Any) -> bool: ...
    def adopt_attempts(self, executor: str, successor: str) -> int: ...
    def executors_on(self, host: str) -> list[ExecutorRow]: ...
    def expire_executors(self, host: str, pid: int) -> int: ...
    def forget_executors(self, dead: Sequence[str]) -> None: ...

    # -- logs and history
    def append_logs(self, run_id: str, entries: Sequence[LogEntry], again: bool = False) -> None: ...
    def record(self, run_id: str, path: str | None, what: str, by: str | None, **detail: Any) -> None: ...

    def close(self) -> None: ...
