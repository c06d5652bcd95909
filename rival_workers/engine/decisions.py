"""Decides what follows from an attempt's outcome: the end of the step, a retry, or its fallback. Pure. Failures,
timeouts and lost executors go through the same function.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Literal

from rival_client.model import history_entries as entries
from rival_client.model import statuses
from rival_client.model.history_entries import EXPIRED
from rival_client.model.payload import NULL, Json, dump
from rival_client.model.policies.breakers import Breaker
from rival_client.model.policies.error_names import names_of
from rival_client.model.policies.fallbacks import Fallback, fell_back
from rival_client.model.policies.step_config import StepConfig
from rival_client.model.record import record
from rival_workers.engine.deadlines import no_time_for_retry
from rival_workers.engine.outcomes import Failure as Failure
from rival_workers.engine.outcomes import Success as Success
from rival_workers.engine.retries import configured_max, delay_after, why_not_retried
from rival_workers.errors import StepTimeout

EndStatus = Literal["completed", "skipped", "failed"]
#: The names of a timeout, for `retry_on`.
_TIMEOUT = (*names_of(StepTimeout), "TimeoutError")


@record(frozen=True)
class End:
    """The step is over."""

    status: EndStatus
    result: Json | None = None
    state: Json | None = None
    error: dict[str, Any] | None = None
    #: A hard failure fails the run; a soft one (behavior="continue") does not.
    hard: bool = False
    outcome: str = entries.COMPLETED
    items: tuple[Json, ...] = ()
    #: A hard failure that operators find among the dead letters.
    dead_letter: bool = False
    #: The step has fallen back: what its row keeps of that.
    fallback: dict[str, Any] | None = None
    #: The error of the attempt, where it is not the error of the step.
    attempt_error: dict[str, Any] | None = None
    overrides: dict[str, Any] | None = None
    #: As of a Success.
    reused_from: str | None = None
    #: The step has an idempotency key: others may wait for its end.
    keyed: bool = False

    @property
    def shared(self) -> Json | None:
        """The result that steps with the same idempotency key use. One of a fallback is not what they asked for."""
        is_own = self.status == self.outcome == statuses.COMPLETED
        return (self.result or NULL) if is_own else None


@dataclass(frozen=True)
class Retry:
    """The step is tried again, `delay` seconds after its failure."""

    delay: float
    error: dict[str, Any] = field(default_factory=dict)
    state: Json | None = None
    outcome: str = entries.FAILED
    #: As of an End.
    fallback: dict[str, Any] | None = None
    #: The retries that the run may make in all.
    budget: int | None = None
    #: When it failed, by the clock of the process; None: just now.
    failed_at: float | None = None
    #: The part of the delay that has passed between the failure and the commit.
    passed: float = 0.0

    @property
    def left(self) -> float:
        """Seconds from now."""
        return max(0.0, self.delay - self.passed)

    def at(self, now: float) -> Retry:
        """The same, with the part of the delay that has passed `now`."""
        return self if self.failed_at is None else replace(self, passed=now - self.failed_at)


@dataclass(frozen=True)
class FallBack:
    """The step waits for the function that it falls back to. It ends with that function, or is retried once."""

    error: dict[str, Any]
    fallback: dict[str, Any]
    state: Json | None = None
    outcome: str = entries.FAILED
    status: Literal["waiting"] = statuses.WAITING


Decision = End | Retry | FallBack


def decide(
    config: StepConfig,
    attempt: int,
    outcome: Success | Failure,
    chance: float = 0.0,
    *,
    has_fallen_back: bool = False,
    retries: int = 0,
    left: float | None = None,
) -> Decision:
    """The only function that turns an outcome into a decision. `has_fallen_back`: the step makes its last attempt.
    `retries`: those that the run has made, if the step has a budget. `left`: seconds until the deadline of
    the step or the run; a retry that would begin after it is not made.
    """
    if isinstance(outcome, Success):
        status: EndStatus = statuses.SKIPPED if outcome.skipped else statuses.COMPLETED
        end = End(status, outcome.result, outcome.state, items=outcome.items, overrides=outcome.overrides)
        return end if outcome.reused_from is None else replace(end, reused_from=outcome.reused_from)
    if has_fallen_back:
        return final(config, outcome, has_fallen_back=True)
    why_not = why_not_retried(config, attempt, outcome)
    if why_not is not None:
        return final(config, _explained(config, attempt, outcome, why_not))
    if config.retry_budget is not None and retries >= config.retry_budget:
        return final(config, _spent(outcome, config.retry_budget))
    delay = delay_after(config, attempt, outcome, chance)
    if (why := no_time_for_retry(delay, left)) is not None:
        return final(config, replace(outcome, error={**outcome.error, "not_retried": why}))
    return Retry(delay, outcome.error, outcome.state, outcome.outcome, budget=config.retry_budget)


def _explained(config: StepConfig, attempt: int, outcome: Failure, why_not: str) -> Failure:
    """The error says why it was not retried, if the step had attempts left."""
    if outcome.behavior == "continue" or attempt >= (configured_max(config) or 1):
        return outcome
    return replace(outcome, error={**outcome.error, "not_retried": why_not})


def _spent(outcome: Failure, budget: int) -> Failure:
    error = outcome.error
    message = (
        f"the run has used its retry_budget of {budget}, so the step is not tried again. The last error was "
        f"{error.get('type', 'Error')}: {error.get('message', '')}"
    )
    cause = {name: error[name] for name in ("type", "message") if name in error}
    return replace(outcome, error={**error, "type": "RetryBudgetSpent", "message": message, "cause": cause})


def final(config: StepConfig, outcome: Failure, *, has_fallen_back: bool = False) -> Decision:
    """No retry follows. An error that lets the run continue has chosen that itself."""
    error, state, how = outcome.error, outcome.state, outcome.outcome
    if outcome.behavior == "continue":
        return End(statuses.FAILED, state=state, error=error, outcome=how)
    # Another attempt is of no use to a step that has no time left.
    is_late = outcome.outcome == EXPIRED and config.fallback is not None and config.fallback.shape == "retry_with"
    if config.fallback is not None and not has_fallen_back and not outcome.skips and not is_late:
        return _instead(config.fallback, outcome)
    if config.on_failure == "skip" or outcome.skips:
        return End(statuses.SKIPPED, state=state, error=error, outcome=how)
    dead = config.on_failure == "dead_letter"
    return End(statuses.FAILED, state=state, error=error, hard=True, outcome=how, dead_letter=dead)


def _instead(fallback: Fallback, outcome: Failure) -> Decision:
    error, state, how = outcome.error, outcome.state, outcome.outcome
    kept = fell_back(fallback.shape, error, fallback.overrides or None)
    match fallback.shape:
        case "value":
            result = dump(fallback.value, what="the value of its fallback")
            return End(statuses.COMPLETED, result, state, outcome=how, fallback=kept, attempt_error=error)
        case "retry_with":
            return Retry(0.0, error, state, how, kept)
        case "function":
            return FallBack(error, kept, state, how)


def timed_out(config: StepConfig, error: dict[str, Any], state: Json | None = None) -> Failure:
    """The step's `on_timeout` decides about a retry; without it, a timeout is an exception like any other."""
    kinds = (error.get("type", "StepTimeout"), *_TIMEOUT)
    return Failure(error, state=state, outcome=entries.TIMED_OUT, kinds=kinds)


def revoked(task_id: str, attempt: int) -> Failure:
    """An operator ended the attempt, not the step: the step's `max_attempts` decides whether another one follows."""
    message = (
        f"task {task_id!r} was revoked (in Flower, or by `celery control revoke`). The step's max_attempts decides "
        "whether it is tried again; `rival cancel` ends a run."
    )
    return Failure({"type": "TaskRevoked", "message": message, "attempt": attempt}, "retry", outcome=entries.REVOKED)


def refused_by(breaker: Breaker, attempt: int) -> Failure:
    """The circuit breaker is open, so the function was not called. It is not retried: the error has chosen that."""
    message = (
        f"the circuit breaker {breaker.name!r} is open, so the step was not called. `rival breaker ls` says until when."
    )
    error = {"type": "BreakerOpen", "message": message, "attempt": attempt, "breaker": breaker.name}
    return Failure(error, "stop", skips=breaker.on_open == "skip")
