"""Outcomes that do not come from the call of a function alone: the answer to an external step, the refusal of a circuit
breaker, a limit that is full.

The function of an external step hands out a completion token and returns; then the step waits until an external system
answers or its time is over. The answer is stored in the step's row; the next attempt makes it the step's outcome.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from typing import Any

from rival_client.model.payload import NULL, Json, dump, serialise
from rival_client.model.policies.breakers import Breaker
from rival_client.model.step_records import Step
from rival_client.sql.external_steps import ATTEMPT, COMPLETED, FAILED, RETRY
from rival_workers.definition.returns import Returns
from rival_workers.engine.decisions import Failure, Success, refused_by, timed_out
from rival_workers.engine.heartbeat_limits import HeartbeatState, deadline_error
from rival_workers.errors import InvalidResult, LimitReached
from rival_workers.runtime.attempt.attempts import Attempt
from rival_workers.runtime.attempt.hook_calls import breaker_moved
from rival_workers.runtime.attempt.invoke import failure
from rival_workers.runtime.attempt.outage import OutageRetry
from rival_workers.runtime.attempt.step_transitions import StepTransitions
from rival_workers.runtime.failpoints import failpoint
from rival_workers.runtime.flow.stop_signals import Suspend
from rival_workers.store.claim_records import Refused
from rival_workers.store.interface import Store

#: Seconds after which a step asks again whose breaker an operator has opened for good.
ASK_AGAIN = 30.0


class Postponed(Exception):
    """The attempt has ended without a call: its step waits for the circuit breaker, or for its idempotency key."""


class BreakerGuard:
    def __init__(self, store: Store, transitions: StepTransitions, outage: OutageRetry) -> None:
        self._store, self._transitions, self._outage = store, transitions, outage

    def is_passed(self, attempt: Attempt) -> bool:
        """An attempt that falls back with other values does not call what the breaker is for."""
        if attempt.claimed.attempt == 1:
            return False
        return self._outage.keep(lambda: self._transitions.has_fallen_back(attempt.position))

    def call(
        self, attempt: Attempt, breaker: Breaker, executor: str, function: Callable[[Attempt], Success | Failure]
    ) -> Success | Failure:
        """Raises Postponed if the step waits."""
        claim, position = attempt.claim, attempt.position
        answer = self._outage.keep(lambda: self._store.ask_breaker(breaker, claim, executor))
        if not answer.goes:
            if breaker.on_open == "wait":
                seconds = ASK_AGAIN if answer.seconds is None else answer.seconds
                self._transitions.postpone(position, seconds + _spread(breaker), breaker.name)
                raise Postponed
            return refused_by(breaker, position.attempt)
        outcome = function(attempt)
        if isinstance(outcome, Failure):
            self._outage.keep(lambda: self._transitions.count_failure(position, outcome, executor))
        elif answer.probes or answer.is_waited_for:
            moved = self._outage.keep(lambda: self._store.breaker_succeeded(breaker, claim, executor))
            failpoint("after_breaker_commit")
            if moved is not None:
                breaker_moved(breaker, moved, attempt)
        return outcome


def _spread(breaker: Breaker) -> float:
    """Steps that have waited do not come back all at once. Most of them come early, so that a probe is not late."""
    return float(random.random() ** 2 * breaker.reset)


def refused_outcome(refused: Refused, attempt: int) -> Success | Failure:
    """The outcome of a step whose function is not called, since a limit is full."""
    if refused.on_full == "skip":
        return Success(NULL, skipped=True)
    return failure(LimitReached(refused.limit, refused.key, refused.why), attempt)


# -- external steps --------------------------------------------------------------------------------------


class External:
    def __init__(
        self, transitions: StepTransitions, outage: OutageRetry, read_step: Callable[[str, str], Step | None]
    ) -> None:
        self._transitions, self._outage, self._read_step = transitions, outage, read_step

    def outcome(self, attempt: Attempt, call: Callable[[Attempt], Success | Failure]) -> Success | Failure:
        """Returns the answer, or the failure or skip of the function. Raises Suspend when the step begins to wait."""
        claimed = attempt.claimed
        step = self._read_step(claimed.run_id, claimed.path)
        if step is not None and _answer_to(step, claimed.attempt) is not None:
            return answered(step, attempt, attempt.definition.returns_at(claimed.path))
        outcome = call(attempt)
        if isinstance(outcome, Failure) or outcome.skipped:
            return outcome
        # If an answer or a cancel was faster, the token is stale, and this attempt has no result that could be lost.
        self._outage.keep(lambda: self._transitions.wait_external(attempt.position, outcome.state))
        raise Suspend


def _answer_to(step: Step, attempt: int) -> dict[str, Any] | None:
    """The answer in the row, if it belongs to this attempt."""
    return step.item if isinstance(step.item, dict) and step.item.get(ATTEMPT) == attempt else None


def answered(step: Step, attempt: Attempt, returns: Returns | None) -> Success | Failure:
    number, config = attempt.claimed.attempt, attempt.position.config
    state = Json(serialise(step.state)) if step.state else None
    answer = _answer_to(step, number) or {}
    if COMPLETED in answer:
        return _completed(answer[COMPLETED], state, attempt, returns)
    if FAILED in answer:
        behavior = "retry" if answer.get(RETRY) else "stop"
        return Failure({**answer[FAILED], "attempt": number}, behavior, state=state)  # type: ignore[arg-type]
    heartbeat = None
    if step.due_at is not None and step.heartbeat_at is not None:
        heartbeat = HeartbeatState(step.heartbeat_at, step.due_at, step.due_at, beaten=True, progress=step.progress)
    return timed_out(config, deadline_error(config, number, heartbeat), state)


def _completed(value: Any, state: Json | None, attempt: Attempt, returns: Returns | None) -> Success | Failure:
    """A result that does not fit the declared type fails the step, as if the function had returned it."""
    where = f"step {attempt.claimed.path!r} of run {attempt.claimed.run_id!r}"
    try:
        fitting = value if returns is None else returns.stored(value, where)
    except InvalidResult as error:
        return failure(error, attempt.claimed.attempt, state)
    # The client has checked the size against its own limit when it stored the answer.
    return Success(dump(fitting, what=f"the result of {where}", limit=sys.maxsize), state)
