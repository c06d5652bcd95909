"""Limits of a step beyond those of one attempt: when its first attempt must have begun, and when the whole step must
have ended. Pure; the times are seconds from now.
"""

from __future__ import annotations

from typing import Any

from rival_client.model.policies.step_config import StepConfig


def expiry_error(
    config: StepConfig, attempts: int, start_in: float | None, left: float | None
) -> dict[str, Any] | None:
    """The error of a step that waits to start; None: it has time left."""
    if left is not None and left <= 0:
        return deadline_exceeded(config, attempts)
    if start_in is None or start_in > 0:
        return None
    within = f" within its queue_timeout of {config.queue_timeout:g} s" if config.queue_timeout else " in time"
    message = f"no worker has begun the step{within}: the workers of its queue are busy, or none serves it"
    return {"type": "QueueTimeout", "message": message, "attempt": attempts}


def deadline_exceeded(config: StepConfig, attempts: int) -> dict[str, Any]:
    of = f" of {config.deadline:g} s" if config.deadline else ""
    message = f"the step has not ended within its deadline{of}, over all attempts"
    return {"type": "DeadlineExceeded", "message": message, "attempt": attempts}


def no_time_for_retry(delay: float, left: float | None) -> str | None:
    """Why a retry after `delay` seconds is not possible; None: it is."""
    if left is None or delay < left:
        return None
    if left <= 0:
        return "the deadline is over"
    return f"the next attempt would begin in {delay:.3g} s, but the deadline is over in {left:.3g} s"
