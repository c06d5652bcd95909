"""External steps: the function hands out a token and returns; then the step waits, until somebody outside has answered
or its time is up. What was answered is in the step's row, and whoever claims it makes it the step's outcome.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from rival_client.model.payload import Json, dump, serialise
from rival_client.model.records import Step
from rival_client.sql.external_steps import ATTEMPT, COMPLETED, FAILED, RETRY
from rival_workers.definition.returns import Returns
from rival_workers.engine.decisions import Failure, Success, timed_out
from rival_workers.engine.heartbeat_limits import HeartbeatState, deadline_error
from rival_workers.errors import InvalidResult
from rival_workers.runtime.attempt.attempts import Attempt
from rival_workers.runtime.attempt.invoke import failure
from rival_workers.runtime.attempt.outage import OutageRetry
from rival_workers.runtime.attempt.step_transitions import StepTransitions
from rival_workers.runtime.flow.signals import Suspend


class External:
    def __init__(
        self, transitions: StepTransitions, outage: OutageRetry, read_step: Callable[[str, str], Step | None]
    ) -> None:
        self._transitions, self._outage, self._read_step = transitions, outage, read_step

    def outcome(self, attempt: Attempt, call: Callable[[Attempt], Success | Failure]) -> Success | Failure:
        """What was answered, or what the function has ended with; Suspend when it has begun to wait."""
        claimed = attempt.claimed
        step = self._read_step(claimed.run_id, claimed.path)
        if step is not None and _about(step, claimed.attempt) is not None:
            return answered(step, attempt, attempt.definition.returns_at(claimed.path))
        outcome = call(attempt)
        if isinstance(outcome, Failure) or outcome.skipped:
            return outcome
        # Whoever was quicker than this (an answer, a cancel) has the step now; there is no result to refuse.
        self._outage.keep(lambda: self._transitions.wait_external(attempt.position, outcome.state))
        raise Suspend


def _about(step: Step, attempt: int) -> dict[str, Any] | None:
    """What the row holds, if it is about this attempt."""
    return step.item if isinstance(step.item, dict) and step.item.get(ATTEMPT) == attempt else None


def answered(step: Step, attempt: Attempt, returns: Returns | None) -> Success | Failure:
    number, config = attempt.claimed.attempt, attempt.position.config
    state = Json(serialise(step.state)) if step.state else None
    said = _about(step, number) or {}
    if COMPLETED in said:
        return _completed(said[COMPLETED], state, attempt, returns)
    if FAILED in said:
        behavior = "retry" if said.get(RETRY) else "stop"
        return Failure({**said[FAILED], "attempt": number}, behavior, state=state)  # type: ignore[arg-type]
    pulse = None
    if step.due_at is not None and step.heartbeat_at is not None:
        pulse = HeartbeatState(step.heartbeat_at, step.due_at, step.due_at, beaten=True, progress=step.progress)
    return timed_out(config, deadline_error(config, number, pulse), state)


def _completed(value: Any, state: Json | None, attempt: Attempt, returns: Returns | None) -> Success | Failure:
    """A result that was declared as something else is the step's failure, as if it had returned it."""
    where = f"step {attempt.claimed.path!r} of run {attempt.claimed.run_id!r}"
    try:
        fitting = value if returns is None else returns.stored(value, where)
    except InvalidResult as error:
        return failure(error, attempt.claimed.attempt, state)
    # Its size was checked when it was given, by the limit of whoever gave it.
    return Success(dump(fitting, what=f"the result of {where}", limit=sys.maxsize), state)
