"""Options that exclude each other, and those that cannot be given to an inline step."""

from __future__ import annotations

from rival_client.model.policies.step_config import StepConfig


def conflicts(config: StepConfig) -> list[str]:
    """Options that make no sense together."""
    found = []
    most = config.max_attempts if config.max_retries is None else config.max_retries + 1
    if config.on_timeout == "retry" and (most or 1) == 1:
        found.append('on_timeout="retry" needs more than one attempt: give max_attempts=2 or more')
    if config.retry_on and (most or 1) == 1:
        found.append("retry_on needs more than one attempt: give max_retries=1 or more")
    if config.on_failure == "fallback" and config.fallback is None:
        found.append('on_failure="fallback" needs a fallback: value(…), retry_with(…) or a function')
    if config.circuit_breaker is not None and config.circuit_breaker.on_open == "fallback" and config.fallback is None:
        found.append(
            'a circuit breaker with on_open="fallback" needs a fallback: value(…), retry_with(…) or a function'
        )
    if config.step_deadline is not None and (config.delay or 0) >= config.step_deadline:
        found.append("deadline counts from the opening of the step: give one that is longer than its delay")
    return found + not_inline(config)


def not_inline(config: StepConfig) -> list[str]:
    """Options with which an inline step would wait, or run elsewhere."""
    breaker = config.circuit_breaker
    waits = {
        "delay": bool(config.delay),
        "scheduled_at": config.scheduled_at is not None,
        "a queue of its own (give the workflow the queue)": config.queue is not None,
        'a limit that waits (give it on_full="skip" or "fail")': any(one.on_full == "wait" for one in config.limits),
        "idempotency_key": config.idempotency_key is not None,
        'a circuit_breaker with on_open="wait"': breaker is not None and breaker.on_open == "wait",
    }
    wrong = [name for name, is_given in waits.items() if is_given and config.is_inline]
    reason = 'execution_mode="inline" runs the step right after the one before it, in the same process'
    return [f"{reason}, so it cannot have {name}" for name in wrong]
