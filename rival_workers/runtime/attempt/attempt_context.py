"""Builds the context of one attempt. Its parts are made when they are read."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Protocol

from rival_client.model.completion_token import CompletionToken
from rival_client.model.kinds import EXTERNAL
from rival_client.model.lazy import lazy
from rival_client.model.policies.step_config import shortest
from rival_client.model.step_records import Step
from rival_workers.engine import names, paths
from rival_workers.engine.names import NameScope
from rival_workers.engine.paths import COMPENSATION
from rival_workers.engine.plan import Plan
from rival_workers.runtime.attempt.attempt_values import failure_seen, input_of, item_of, overrides_of
from rival_workers.runtime.attempt.attempts import Attempt
from rival_workers.runtime.attempt.context import Context, RunInfo, Steps, StepState
from rival_workers.runtime.attempt.outage import AttemptReads
from rival_workers.runtime.attempt.step_transitions import StepTransitions
from rival_workers.runtime.attempt.time_limits import Heartbeat, TimeLimits
from rival_workers.runtime.logs.step_log import StepLog
from rival_workers.runtime.logs.stream import LogStream
from rival_workers.settings import WorkerSettings
from rival_workers.store.interface import Store


class ProcessParts(Protocol):
    """What a context needs of the process that runs the attempt."""

    settings: WorkerSettings
    store: Store
    reads: AttemptReads
    logs: LogStream
    limits: TimeLimits
    transitions: StepTransitions

    def left(self, attempt: Attempt) -> float | None:
        """Seconds until the deadline of the run."""


class AttemptContext(Context):
    """The context of one attempt. Most functions read little of it: each part is made when it is read."""

    def __init__(self, attempt: Attempt, process: ProcessParts) -> None:
        self._attempt, self._process, self._reads = attempt, process, process.reads
        self._began = process.limits.clock()
        if paths.is_reaction(attempt.claimed.path):
            failure = failure_seen(attempt, self._view, self._reads.failure)
            self.previous = self.failed_step_name = failure.step
            self.error = failure.error

    @property
    def where(self) -> str:
        claimed = self._attempt.claimed
        return f"step {claimed.path!r} of run {claimed.run_id!r}"

    @property
    def _path(self) -> str:
        return self._attempt.claimed.path

    @property
    def _plan(self) -> Plan:
        return self._attempt.definition.plan

    def _view(self, path: str) -> Step | None:
        return self._reads.step(self._attempt.claimed.run_id, path)

    def _read_item(self, path: str) -> Any:
        return self._reads.item(self._attempt.claimed.run_id, path)

    @lazy
    def run(self) -> RunInfo:
        claimed, definition = self._attempt.claimed, self._attempt.definition
        which = (claimed.run_id, definition.name, definition.version, claimed.path, claimed.attempt)
        return RunInfo(*which, dict(claimed.facts.labels or {}), claimed.facts.deadline_at)

    @lazy
    def steps(self) -> Steps:
        scope = NameScope(self._plan, self._path)
        # Not `self._view`: the context would hold itself, and only a garbage collection would free it.
        view = partial(self._reads.step, self._attempt.claimed.run_id)
        return Steps(scope, view, self._attempt.ended, self._attempt.definition.returns_at)

    @lazy
    def log(self) -> StepLog:
        claimed = self._attempt.claimed
        log = self._process.logs.open(claimed.run_id, self._attempt.definition.name, claimed.path, claimed.attempt)
        log.level = self._attempt.position.config.log_level
        return log

    @lazy
    def state(self) -> StepState:
        return StepState()

    @lazy
    def previous(self) -> str | None:
        return names.before(self._plan, self._path)

    @lazy
    def index(self) -> int | None:
        return None if "[" not in self._path else names.index_of(self._plan, self._path)

    @lazy
    def run_continues(self) -> bool:
        return paths.is_handler(self._path) and names.run_continues(self._plan, self._path, self._attempt.claimed.kind)

    @lazy
    def undoes(self) -> str | None:
        return self._path.removesuffix(COMPENSATION) if paths.is_compensation(self._path) else None

    @lazy
    def metadata(self) -> Mapping[str, Any]:
        found: Mapping[str, Any] = self._attempt.position.config.metadata
        return found

    @lazy
    def token(self) -> CompletionToken | None:
        is_external = self._attempt.claimed.kind == EXTERNAL
        return CompletionToken(*self._attempt.where, self._attempt.claim.token) if is_external else None

    def read_input(self) -> Any:
        return input_of(self._attempt, self._view, self._read_item)

    def read_item(self) -> Any:
        return item_of(self._plan, self._path, self._read_item)

    def read_event(self) -> Any:
        item = self._attempt.claimed.item
        return self._read_item(self._path) if item is None else item

    def read_overrides(self) -> dict[str, Any]:
        return overrides_of(self._attempt.claimed, self._view)

    def is_over(self) -> bool:
        return self._reads.is_over(self._attempt.held.claim)

    def read_clock(self) -> float:
        return self._process.transitions.clock()

    @lazy
    def beats(self) -> Heartbeat:
        claimed, process = self._attempt.claimed, self._process
        before = None if claimed.attempt == 1 and not claimed.lost else partial(self._reads.step, *self._attempt.where)
        config, max_payload = self._attempt.position.config, process.settings.max_payload
        how = (config, process.store, process.limits.clock, max_payload, before)
        return Heartbeat(self._attempt.claim, *how, has_row=self._attempt.before is None)

    @lazy
    def allow_shell(self) -> bool:
        return self._process.settings.allow_shell

    def read_remaining(self) -> float | None:
        attempt, process, timeout = self._attempt, self._process, self._attempt.position.config.timeout
        own = None if timeout is None else self._began + timeout - process.limits.clock()
        return shortest(own, process.transitions.left(attempt.position), process.left(attempt))
