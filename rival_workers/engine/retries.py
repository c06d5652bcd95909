"""Whether a failed attempt is retried, and after how long. Pure.

`max_retries` retries every exception. `max_attempts` only caps the attempts of what asks for a retry: a StepError with
behavior="retry", a timeout with on_timeout="retry", an error that `retry_on` names. `retry_on` narrows the first and
widens the second. `no_retry_on` wins over `retry_on`, and a StepError over both.
"""

from __future__ import annotations

from rival_client.model.history_entries import EXPIRED, TIMED_OUT
from rival_client.model.policies.error_names import matching
from rival_client.model.policies.step_config import Backoff, StepConfig
from rival_workers.engine.outcomes import Failure


def configured_max(config: StepConfig) -> int | None:
    """The most attempts that the options allow; None: they say nothing."""
    return config.max_attempts if config.max_retries is None else config.max_retries + 1


def effective_max(config_max: int | None, error_max: int | None) -> int:
    """An error can lower the configured maximum, never raise it."""
    wanted = error_max or config_max or 1
    return min(wanted, config_max) if config_max else wanted


def why_not_retried(config: StepConfig, attempt: int, outcome: Failure) -> str | None:
    """None: another attempt follows."""
    refused = _refused(config, outcome)
    if refused is not None:
        return refused
    most = effective_max(configured_max(config), outcome.max_attempts)
    return None if attempt < most else f"it was the last of {most} attempts" if most > 1 else "it has one attempt"


def _refused(config: StepConfig, outcome: Failure) -> str | None:
    """Why the error does not lead to a retry, however many attempts are left."""
    if outcome.outcome == EXPIRED:
        # It is not the end of an attempt, and its time does not begin again.
        return "its queue_timeout is over" if outcome.error.get("type") == "QueueTimeout" else "its deadline is over"
    if outcome.is_chosen:
        return None if outcome.behavior == "retry" else f"its StepError says behavior={outcome.behavior!r}"
    if outcome.outcome == TIMED_OUT and config.on_timeout is not None:
        return None if config.on_timeout == "retry" else "on_timeout is 'stop'"
    named = matching(config.no_retry_on, outcome.kinds)
    if named is not None:
        return f"no_retry_on has {named!r}"
    if config.retry_on is not None:
        return None if matching(config.retry_on, outcome.kinds) else "retry_on does not name it"
    if config.max_retries is not None:
        return None
    asks = "on_timeout='retry'" if outcome.outcome == TIMED_OUT else "StepError(behavior='retry')"
    return f"that takes {asks}, max_retries or retry_on"


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


def delay_after(config: StepConfig, attempt: int, outcome: Failure, chance: float) -> float:
    """The backoff, or the time that the error names if that is longer, up to `max_retry_after`."""
    backoff = retry_delay(config, outcome.backoff, attempt, chance)
    return max(backoff, min(outcome.retry_after or 0.0, config.max_retry_after))
