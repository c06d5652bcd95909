"""The context of one attempt, whose parts are made when they are read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from rival_client.errors import InvalidInput
from rival_client.model import statuses
from rival_client.model.completion_token import CompletionToken
from rival_client.model.kinds import EXTERNAL, FLOW
from rival_client.model.lazy import lazy
from rival_client.model.payload import copied, load
from rival_client.model.policies.step_config import shortest
from rival_client.model.step_records import Step
from rival_workers.engine import interpreter, names, paths
from rival_workers.engine.names import NameScope
from rival_workers.engine.paths import COMPENSATION
from rival_workers.engine.plan import Plan
from rival_workers.runtime.attempt.attempts import Attempt
from rival_workers.runtime.attempt.context import Context, RunInfo, Steps, StepState
from rival_workers.runtime.attempt.outage import AttemptReads
from rival_workers.runtime.attempt.step_transitions import StepTransitions
from rival_workers.runtime.attempt.time_limits import Heartbeat, TimeLimits
from rival_workers.runtime.logs.step_log import StepLog
from rival_workers.runtime.logs.stream import LogStream
from rival_workers.settings import WorkerSettings
from rival_workers.store.claim_records import Claimed
from rival_workers.store.interface import Store

#: Reads the step that has failed a run, and its error.
ReadRun = Callable[[str], tuple[str | None, dict[str, Any] | None]]
View = Callable[[str], Step | None]


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
            failure = _failure(attempt, self._view, self._reads.failure)
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
        return Steps(scope, self._view, self._attempt.ended, self._attempt.definition.returns_at)

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
        return _input(self._attempt, self._view, self._read_item)

    def read_item(self) -> Any:
        return _item(self._plan, self._path, self._read_item)

    def read_event(self) -> Any:
        item = self._attempt.claimed.item
        return self._read_item(self._path) if item is None else item

    def read_overrides(self) -> dict[str, Any]:
        return _overrides(self._attempt.claimed, self._view)

    def is_over(self) -> bool:
        return self._reads.is_over(self._attempt.claim)

    def read_clock(self) -> float:
        return self._process.transitions.clock()

    @lazy
    def beats(self) -> Heartbeat:
        claimed, process = self._attempt.claimed, self._process
        before = None if claimed.attempt == 1 and not claimed.lost else partial(self._reads.step, *self._attempt.where)
        config, max_payload = self._attempt.position.config, process.settings.max_payload
        return Heartbeat(self._attempt.claim, config, process.store, process.limits.clock, max_payload, before)

    @lazy
    def allow_shell(self) -> bool:
        return self._process.settings.allow_shell

    def read_remaining(self) -> float | None:
        attempt, process, timeout = self._attempt, self._process, self._attempt.position.config.timeout
        own = None if timeout is None else self._began + timeout - process.limits.clock()
        return shortest(own, process.transitions.left(attempt.position), process.left(attempt))


@dataclass(frozen=True, slots=True)
class FailureSeen:
    """What a handler receives: the step that failed, and its error."""

    step: str | None
    error: dict[str, Any] | None


def _failure(attempt: Attempt, view: View, read_run: ReadRun) -> FailureSeen:
    """A step's handler receives the failure of that step; a workflow's handler, that of the step that has failed the
    run. A compensation receives the failure of the scope that is being compensated.
    """
    path = attempt.claimed.path
    of = _compensated_scope(attempt, view) if paths.is_compensation(path) else paths.role_of(path)[0]
    if not of:
        return FailureSeen(*read_run(attempt.claimed.run_id))
    step = view(of)
    error = dict(step.error or {}) if step else {}
    # A composite's error names the step that failed.
    return FailureSeen(error.pop("step", of), error)


def _compensated_scope(attempt: Attempt, view: View) -> str:
    """The path of the nested workflow that is being compensated, or "" for the whole run."""
    for scope in interpreter.absorbing(attempt.definition.plan, attempt.claimed.path):
        compensating = view(scope + COMPENSATION)
        if compensating is not None and compensating.status == statuses.WAITING:
            return scope
    return ""


def _overrides(claimed: Claimed, view: View) -> dict[str, Any]:
    """A step falls back after an attempt of its own, so the first one has none."""
    row = None if claimed.attempt == 1 else view(claimed.path)
    found: dict[str, Any] = {} if row is None or row.fallback is None else row.fallback.get("overrides", {})
    return found


def _item(plan: Plan, path: str, read: Callable[[str], Any]) -> Any:
    row = names.item_of(plan, path)
    return None if row is None else read(row)


def given_values(attempt: Attempt, reads: AttemptReads) -> dict[str, Any]:
    """What a text such as `charge:{input.order}` can name."""
    claimed = attempt.claimed
    item = _item(attempt.definition.plan, claimed.path, partial(reads.item, claimed.run_id))
    its_input = _given_input(attempt, partial(reads.step, claimed.run_id))
    return {"input": its_input, "item": item, "labels": claimed.facts.labels, "run": {"id": claimed.run_id}}


def _given_input(attempt: Attempt, view: View) -> Any:
    """The input of the workflow that has the step, as it is stored."""
    made_by = names.input_of(attempt.definition.plan, attempt.claimed.path)
    if made_by is None:
        # A copy, since later steps of the same message receive the same object.
        return copied(attempt.claimed.input)
    made = attempt.ended.get(made_by)
    found = None if made else view(made_by)
    return load(made.result) if made else found.result if found else None


def _input(attempt: Attempt, view: View, read_item: Callable[[str], Any]) -> Any:
    claimed, definition = attempt.claimed, attempt.definition
    carried = None
    if attempt.continued is not None:
        carried = load(attempt.continued.input)
    elif claimed.kind == FLOW:
        carried = read_item(claimed.path)
    value = _given_input(attempt, view) if carried is None else carried
    call = definition.call_at(claimed.path)
    try:
        return value if call is None or call.read_input is None else call.read_input(value)
    except ValueError as error:
        raise InvalidInput(definition.name, [str(error)], started_run=claimed.run_id) from error
