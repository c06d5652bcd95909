"""Steps whose functions are not called: asks the circuit breaker of a step before the call and reports the outcome to
it; the outcome of a step whose limit is full.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from rival_client.model.breakers import Breaker
from rival_client.model.payload import NULL
from rival_workers.engine.decisions import Failure, Success, refused_by
from rival_workers.errors import LimitReached
from rival_workers.runtime.attempt.attempts import Attempt
from rival_workers.runtime.attempt.hook_calls import breaker_moved
from rival_workers.runtime.attempt.invoke import failure
from rival_workers.runtime.attempt.outage import OutageRetry
from rival_workers.runtime.attempt.step_transitions import StepTransitions
from rival_workers.store.claim_records import Refused
from rival_workers.store.interface import Store

#: Seconds after which a step asks again whose breaker an operator has opened for good.
ASK_AGAIN = 30.0


class Postponed(Exception):
    """The attempt has ended without a call: its step waits for the circuit breaker."""


class BreakerGuard:
    def __init__(self, store: Store, transitions: StepTransitions, outage: OutageRetry) -> None:
        self._store, self._transitions, self._outage = store, transitions, outage

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
        elif answer.probes:
            moved = self._outage.keep(lambda: self._store.breaker_succeeded(breaker, claim, executor))
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
    return failure(LimitReached(refused.limit, refused.key, refused.max, refused.is_crowded), attempt)
