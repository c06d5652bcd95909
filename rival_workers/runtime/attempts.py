"""One attempt as a value, and the context its function sees."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from rival_client.errors import InvalidInput
from rival_client.records import Step
from rival_workers.definition.workflow import WorkflowDefinition
from rival_workers.engine.decisions import End
from rival_workers.engine.interpreter import HANDLER, Advance
from rival_workers.runtime.context import Context, Ended, RunInfo, Steps, StepState
from rival_workers.runtime.logs import StepLog
from rival_workers.runtime.moves import Position
from rival_workers.store.base import Claimed, Held

ReadStep = Callable[[str, str], Step | None]


@dataclass(frozen=True, slots=True)
class Attempt:
    """One execution of a step's function, through the pipeline."""

    claimed: Claimed
    definition: WorkflowDefinition
    position: Position
    #: What earlier attempts of the same message have ended with: saves reading it back.
    ended: dict[str, Ended] = field(default_factory=dict)

    @property
    def held(self) -> Held:
        return self.position.held


def attempt_of(claimed: Claimed, definition: WorkflowDefinition, ended: dict[str, Ended] | None = None) -> Attempt:
    held = Held(claimed.run_id, claimed.path, claimed.token)
    failing = claimed.failed_step is not None
    plan = definition.plan
    position = Position(held, definition.name, definition.version, plan, claimed.attempt, claimed.lost, failing)
    return Attempt(claimed, definition, position, {} if ended is None else ended)


def following(attempt: Attempt, end: End, advance: Advance) -> Attempt | None:
    """The next step, claimed by the commit that finished this one."""
    opening, claimed = advance.opening, attempt.claimed
    if opening is None:
        return None
    attempt.ended[claimed.path] = Ended(end.status, end.result, end.state)
    failed_step = claimed.path if advance.fails_run else claimed.failed_step
    error = end.error if advance.fails_run else claimed.error
    claim = Claimed(claimed.run_id, opening.path, 1, 1, 1, 0, claimed.input, failed_step, error)
    return attempt_of(claim, attempt.definition, attempt.ended)


def context_of(attempt: Attempt, read_step: ReadStep) -> Context:
    claimed, definition = attempt.claimed, attempt.definition
    of = claimed.path.removesuffix(HANDLER)
    is_handler = of != claimed.path
    # The workflow's own handler hangs on no step: what it is about is the step that failed.
    subject = (of or claimed.failed_step) if is_handler else None
    return Context(
        run=RunInfo(claimed.run_id, definition.name, definition.version, claimed.path, claimed.attempt),
        steps=Steps(definition.plan.names, lambda name: read_step(claimed.run_id, name), attempt.ended),
        log=StepLog(claimed.run_id, f"{definition.name}.{claimed.path}", claimed.path, claimed.attempt),
        state=StepState(),
        read_input=lambda: _input(definition, claimed.input),
        previous=subject if is_handler else definition.plan.before(claimed.path),
        error=_error(attempt, of, read_step) if is_handler else None,
        failed_step_name=subject,
    )


def _error(attempt: Attempt, of: str, read_step: ReadStep) -> dict[str, Any] | None:
    """The run's error; or, for the handler of a step that failed softly, that step's."""
    if attempt.claimed.error is not None:
        return attempt.claimed.error
    step = read_step(attempt.claimed.run_id, of)
    return step.error if step else None


def _input(definition: WorkflowDefinition, value: Any) -> Any:
    try:
        return definition.read_input(value)
    except ValueError as error:
        raise InvalidInput(definition.name, [str(error)]) from error
