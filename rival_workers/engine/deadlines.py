"""The limits of a step beyond one attempt: when its first attempt must have begun, and when the whole step must have
ended. Pure; the times are seconds from now.
"""

from __future__ import annotations

from typing import Any

from rival_client.model.durations import duration_text
from rival_client.model.policies.step_config import StepConfig


def expiry_error(
    config: StepConfig, attempts: int, start_in: float | None, left: float | None
) -> dict[str, Any] | None:
    """The error of a step that waits to start; None: it has time left."""
    if left is not None and left <= 0:
        return deadline_exceeded(config, attempts)
    if start_in is None or start_in > 0:
        return None
    within = (
        f" within its queue_timeout of {duration_text(config.queue_timeout)}" if config.queue_timeout else " in time"
    )
    message = f"no worker has begun the step{within}: {_what_it_waits_for(config)}"
    return {"type": "QueueTimeout", "message": message, "attempt": attempts}


def _what_it_waits_for(config: StepConfig) -> str:
    """A step that waits for its circuit breaker or its idempotency key has begun."""
    possible = "the workers of its queue are busy, or none serves it"
    return f"{possible}, or its limits are full" if config.limits else possible


def deadline_exceeded(config: StepConfig, attempts: int) -> dict[str, Any]:
    of = f" of {duration_text(config.deadline)}" if config.deadline else ""
    message = f"the step has not ended within its deadline{of}, over all attempts"
    return {"type": "DeadlineExceeded", "message": message, "attempt": attempts}


def no_time_for_retry(delay: float, left: float | None) -> str | None:
    """Why a retry after `delay` seconds is not possible; None: it is."""
    if left is None or delay < left:
        return None
    if left <= 0:
        return "the deadline is over"
    return f"the next attempt would begin in {duration_text(delay)}, but the deadline is over in {duration_text(left)}"
