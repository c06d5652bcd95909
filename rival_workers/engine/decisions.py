"""Decides what follows from an attempt's outcome: the end of the step, or a retry. Pure. Failures, timeouts and lost
executors go through the same function.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from rival_client.model.payload import Json
from rival_workers.engine.plan import StepConfig
from rival_workers.errors import Backoff, Behavior

EndStatus = Literal["completed", "skipped", "failed"]


@dataclass(frozen=True)
class Success:
    result: Json
    state: Json | None = None
    skipped: bool = False
    #: The items of a for_each, when this was the call of its `items`.
    items: tuple[Json, ...] = ()


@dataclass(frozen=True)
class Failure:
    """A failed attempt, and what its error asks for."""

    error: dict[str, Any]
    behavior: Behavior = "stop"
    max_attempts: int | None = None
    backoff: Backoff | None = None
    state: Json | None = None
    #: How the attempt is listed: failed, timed_out, lost, revoked.
    outcome: str = "failed"


@dataclass(frozen=True)
class End:
    """The step is over."""

    status: EndStatus
    result: Json | None = None
    state: Json | None = None
    error: dict[str, Any] | None = None
    #: A hard failure fails the run; a soft one (behavior="continue") does not.
    hard: bool = False
    outcome: str = "completed"
    items: tuple[Json, ...] = ()


@dataclass(frozen=True)
class Retry:
    """The step is tried again, `delay` seconds from now."""

    delay: float
    error: dict[str, Any] = field(default_factory=dict)
    state: Json | None = None
    outcome: str = "failed"


def effective_max(config_max: int | None, error_max: int | None) -> int:
    """An error can lower the configured maximum, never raise it."""
    wanted = error_max or config_max or 1
    return min(wanted, config_max) if config_max else wanted


def retry_delay(config: StepConfig, backoff: Backoff | None, attempt: int, chance: float) -> float:
    """Seconds between `attempt` and the next one. `chance` in [0, 1) is the random number of the jitter."""
    strategy = backoff or config.backoff or "linear"
    if strategy == "none":
        return 0.0
    if strategy == "linear":
        return min(config.base_delay * attempt, config.max_delay)
    # 2.0 ** 1024 would overflow; beyond 2 ** 60 the cap decides anyway.
    exponential = min(config.base_delay * 2.0 ** min(attempt - 1, 60), config.max_delay)
    return exponential * chance if strategy == "jitter" else exponential


def decide(config: StepConfig, attempt: int, outcome: Success | Failure, chance: float = 0.0) -> End | Retry:
    """The only function that turns an outcome into a decision."""
    if isinstance(outcome, Success):
        status: EndStatus = "skipped" if outcome.skipped else "completed"
        return End(status, outcome.result, outcome.state, items=outcome.items)
    if outcome.behavior == "retry" and attempt < effective_max(config.max_attempts, outcome.max_attempts):
        delay = retry_delay(config, outcome.backoff, attempt, chance)
        return Retry(delay, outcome.error, outcome.state, outcome.outcome)
    return End(
        "failed",
        state=outcome.state,
        error=outcome.error,
        hard=outcome.behavior != "continue",
        outcome=outcome.outcome,
    )


def timed_out(config: StepConfig, error: dict[str, Any], state: Json | None = None) -> Failure:
    """A timeout is a failure whose behavior is the step's `on_timeout`."""
    behavior: Behavior = "retry" if config.on_timeout == "retry" else "stop"
    return Failure(error, behavior, state=state, outcome="timed_out")


def revoked(task_id: str, attempt: int) -> Failure:
    """An operator ended the attempt, not the step: the step's `max_attempts` decides whether another one follows."""
    message = (
        f"task {task_id!r} was revoked (in Flower, or by `celery control revoke`). The step's max_attempts decides "
        "whether it is tried again; `rival cancel` ends a run."
    )
    return Failure({"type": "TaskRevoked", "message": message, "attempt": attempt}, "retry", outcome="revoked")


def decide_lost(lost: int, max_lost: int, error: dict[str, Any]) -> End | None:
    """None: start it again. A step that kills its workers is started at most `max_lost` times."""
    return None if lost < max_lost else End("failed", error=error, hard=True, outcome="lost")
