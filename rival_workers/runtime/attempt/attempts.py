"""One attempt as a value, and the context that its function receives. This module reads through callbacks only."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal

from rival_client.errors import InvalidInput
from rival_client.model import statuses
from rival_client.model.kinds import FLOW
from rival_client.model.payload import copied, load
from rival_client.model.records import Step
from rival_client.model.run_policies import Rulebook
from rival_client.model.step_config import StepConfig
from rival_workers.definition.workflow import WorkflowDefinition
from rival_workers.engine import interpreter, names, paths
from rival_workers.engine.decisions import End, FallBack
from rival_workers.engine.effects import OpenRow
from rival_workers.engine.names import NameScope
from rival_workers.engine.paths import COMPENSATION
from rival_workers.engine.plan import Plan
from rival_workers.runtime.attempt.context import Context, Ended, RunInfo, Steps, StepState
from rival_workers.runtime.attempt.position import Position
from rival_workers.runtime.logs.stream import LogStream
from rival_workers.store.claim_records import BeginResult, Claim, Claimed, RunFacts

ReadStep = Callable[[str, str], Step | None]
#: Reads the item of a row: an item of a for_each, a delivered event, or the input of a continued flow.
ReadItem = Callable[[str, str], Any]
#: Reads the step that has failed a run, and its error.
ReadRun = Callable[[str], tuple[str | None, dict[str, Any] | None]]
View = Callable[[str], Step | None]


@dataclass(frozen=True)
class Verdict:
    """The outcome of the attempt that a message named. "stale" with an error: it ran, and its result came too late."""

    what: Literal["completed", "skipped", "failed", "retried", "suspended", "stale"]
    error: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Attempt:
    """One execution of a step's function."""

    claimed: Claimed
    definition: WorkflowDefinition
    position: Position
    #: Outcomes of earlier attempts of the same message, so that they need not be read back.
    ended: dict[str, Ended] = field(default_factory=dict)
    #: When the deadline of the run passes, by the monotonic clock of this process.
    expires: float | None = None

    @property
    def claim(self) -> Claim:
        return self.position.claim

    @property
    def where(self) -> tuple[str, str]:
        return self.claimed.run_id, self.claimed.path


def attempt_of(
    claimed: Claimed, definition: WorkflowDefinition, book: Rulebook, ended: dict[str, Ended] | None = None
) -> Attempt:
    """Its options are those that the workflow, the run and the fleet (`book`) give at this moment."""
    claim = Claim(claimed.run_id, claimed.path, claimed.token)
    policies = definition.policies.over(claimed.facts.policies, book, claimed.facts.labels)
    named = (definition.name, definition.version, policies)
    position = Position(claim, *named, claimed.attempt, claimed.lost, claimed.kind, claimed.route, claimed.facts.level)
    return Attempt(claimed, definition, position, {} if ended is None else ended)


def first_attempt(
    run_id: str, started: BeginResult, opening: OpenRow, definition: WorkflowDefinition, book: Rulebook
) -> Attempt:
    """The attempt of a run's first step, claimed by the statement that started the run."""
    config = definition.policies.over(started.facts.policies, book, started.facts.labels).at(opening.path)
    claimed = _first_claim(run_id, opening, config, started.input, started.finished.token, started.facts)
    return attempt_of(claimed, definition, book)


def next_attempt(attempt: Attempt, end: End | FallBack, opening: OpenRow, token: int, book: Rulebook) -> Attempt:
    """The attempt of the next step, claimed by the commit that finished this one."""
    claimed = attempt.claimed
    if isinstance(end, End):
        attempt.ended[claimed.path] = Ended(end.status, end.result, end.state)
    config = attempt.position.policies.under(book).at(opening.path)
    first = _first_claim(claimed.run_id, opening, config, claimed.input, token, claimed.facts)
    return replace(attempt_of(first, attempt.definition, book, attempt.ended), expires=attempt.expires)


def _first_claim(
    run_id: str, opening: OpenRow, config: StepConfig, run_input: Any, token: int, facts: RunFacts
) -> Claimed:
    """The claim of a step's first attempt, after an insert whose tokens begin at `token`."""
    tokens = (token + 1, token + 1)
    route, left = opening.route or config.route(facts.level), config.step_deadline
    return Claimed(run_id, opening.path, *tokens, 1, 0, run_input, opening.kind, facts=facts, route=route, left=left)


def context_of(
    attempt: Attempt, read_step: ReadStep, read_item: ReadItem, read_run: ReadRun, logs: LogStream
) -> Context:
    claimed, definition = attempt.claimed, attempt.definition
    plan, path = definition.plan, claimed.path
    view, item = partial(read_step, claimed.run_id), partial(read_item, claimed.run_id)
    reacts = paths.is_reaction(path)
    failure = _failure(attempt, view, read_run) if reacts else NO_FAILURE
    return Context(
        run=RunInfo(
            claimed.run_id,
            definition.name,
            definition.version,
            path,
            claimed.attempt,
            dict(claimed.facts.labels or {}),
            claimed.facts.deadline_at,
        ),
        steps=Steps(NameScope(plan, path), view, attempt.ended, definition.returns_at),
        log=logs.open(claimed.run_id, definition.name, path, claimed.attempt),
        state=StepState(),
        read_input=lambda: _input(attempt, view, item),
        previous=failure.step if reacts else names.before(plan, path),
        read_item=lambda: _item(plan, path, item),
        read_event=lambda: item(path) if claimed.item is None else claimed.item,
        index=None if "[" not in path else names.index_of(plan, path),
        error=failure.error,
        failed_step_name=failure.step,
        run_continues=paths.is_handler(path) and names.run_continues(plan, path, claimed.kind),
        undoes=path.removesuffix(COMPENSATION) if paths.is_compensation(path) else None,
        read_overrides=lambda: _overrides(claimed, view),
    )


@dataclass(frozen=True, slots=True)
class FailureSeen:
    """What a handler receives: the step that failed, and its error."""

    step: str | None
    error: dict[str, Any] | None


NO_FAILURE = FailureSeen(None, None)


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


def _input(attempt: Attempt, view: View, read_item: Callable[[str], Any]) -> Any:
    claimed, definition = attempt.claimed, attempt.definition
    made_by = names.input_of(definition.plan, claimed.path)
    # A copy, since later steps of the same message receive the same object.
    value = copied(claimed.input)
    if claimed.kind == FLOW and (carried := read_item(claimed.path)) is not None:
        value = carried
    elif made_by is not None:
        made = attempt.ended.get(made_by)
        found = None if made else view(made_by)
        value = load(made.result) if made else found.result if found else None
    call = definition.call_at(claimed.path)
    try:
        return value if call is None or call.read_input is None else call.read_input(value)
    except ValueError as error:
        raise InvalidInput(definition.name, [str(error)]) from error
