"""One attempt as a value, and the context that its function receives. This module reads through callbacks only."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from rival_client.errors import InvalidInput
from rival_client.model.kinds import FLOW
from rival_client.model.payload import copied, load
from rival_client.model.records import Step
from rival_workers.definition.workflow import WorkflowDefinition
from rival_workers.engine import interpreter, names, paths
from rival_workers.engine.decisions import End
from rival_workers.engine.effects import OpenRow
from rival_workers.engine.names import NameScope
from rival_workers.engine.paths import COMPENSATION, HANDLER
from rival_workers.engine.plan import Plan
from rival_workers.runtime.attempt.context import Context, Ended, RunInfo, Steps, StepState
from rival_workers.runtime.attempt.step_transitions import Position
from rival_workers.runtime.logs.stream import LogStream
from rival_workers.store.interface import Claim, Claimed

ReadStep = Callable[[str, str], Step | None]
#: Reads the item of a row: an item of a for_each, a delivered event, or the input of a continued flow.
ReadItem = Callable[[str, str], Any]
#: Reads the step that has failed a run, and its error.
ReadRun = Callable[[str], tuple[str | None, dict[str, Any] | None]]
View = Callable[[str], Step | None]


@dataclass(frozen=True, slots=True)
class Attempt:
    """One execution of a step's function."""

    claimed: Claimed
    definition: WorkflowDefinition
    position: Position
    #: Outcomes of earlier attempts of the same message, so that they need not be read back.
    ended: dict[str, Ended] = field(default_factory=dict)

    @property
    def claim(self) -> Claim:
        return self.position.claim

    @property
    def where(self) -> tuple[str, str]:
        return self.claimed.run_id, self.claimed.path


def attempt_of(claimed: Claimed, definition: WorkflowDefinition, ended: dict[str, Ended] | None = None) -> Attempt:
    claim = Claim(claimed.run_id, claimed.path, claimed.token)
    position = Position(
        claim, definition.name, definition.version, definition.plan, claimed.attempt, claimed.lost, claimed.kind
    )
    return Attempt(claimed, definition, position, {} if ended is None else ended)


def first_attempt(run_id: str, run_input: Any, opening: OpenRow, definition: WorkflowDefinition, token: int) -> Attempt:
    """The attempt of a run's first step, claimed by the statement that started the run."""
    return attempt_of(_first_claim(run_id, opening, run_input, token), definition)


def next_attempt(attempt: Attempt, end: End, opening: OpenRow, token: int) -> Attempt:
    """The attempt of the next step, claimed by the commit that finished this one."""
    claimed = attempt.claimed
    attempt.ended[claimed.path] = Ended(end.status, end.result, end.state)
    first = _first_claim(claimed.run_id, opening, claimed.input, token)
    return attempt_of(first, attempt.definition, attempt.ended)


def _first_claim(run_id: str, opening: OpenRow, run_input: Any, token: int) -> Claimed:
    """The claim of a step's first attempt, after an insert whose tokens begin at `token`."""
    return Claimed(run_id, opening.path, token + 1, token + 1, attempt=1, lost=0, input=run_input, kind=opening.kind)


def context_of(
    attempt: Attempt, read_step: ReadStep, read_item: ReadItem, read_run: ReadRun, logs: LogStream
) -> Context:
    claimed, definition = attempt.claimed, attempt.definition
    plan, path = definition.plan, claimed.path
    view, item = partial(read_step, claimed.run_id), partial(read_item, claimed.run_id)
    reacts = paths.is_reaction(path)
    failure = _failure(attempt, view, read_run) if reacts else NO_FAILURE
    return Context(
        run=RunInfo(claimed.run_id, definition.name, definition.version, path, claimed.attempt),
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
    of = _compensated_scope(attempt, view) if paths.is_compensation(path) else path.removesuffix(HANDLER)
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
        if compensating is not None and compensating.status == "waiting":
            return scope
    return ""


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
