"""The errors of steps, flows and definitions.

RivalError (rival_client)
├── DefinitionError      a workflow cannot be registered; `.problems` lists every reason
├── StepError            raised by a step to choose what follows: stop, continue or retry
│   └── EventTimeout     the event that a step waited for did not arrive in time
├── InvalidResult        a step's result does not have its declared type
├── FlowChanged          a replayed flow reached another checkpoint than before
├── FlowStuck            a flow awaits a future that no checkpoint completes
├── NotInFlows           a flow's own code used I/O, threads, or ctx inside a step
├── StepFailed           raised in a flow: one of its steps has failed finally
│   └── ChildFailed      the same for a child run
├── DeadlineExceeded     the run, or the step over all attempts, did not end by its deadline
├── StepTimeout          the attempt took longer than its timeout
│   └── HeartbeatMissed  the attempt sent no heartbeat for too long
├── IdempotencyConflict  another input has the idempotency key of the step
├── LimitReached         a limit of the step is full, and the step does not wait for it
├── QueueTimeout         no worker has begun the step within its queue_timeout
├── StepMovedOn          raised by `ctx.heartbeat()`: the step does not need this attempt any more
├── TaskRevoked          the attempt's Celery task was revoked, in Flower or by `celery control revoke`
├── BreakerOpen          the step was not called, because its circuit breaker is open
├── RetryBudgetSpent     the run has made as many retries as its `retry_budget` allows
└── ExecutorLost         the step lost its executor more than `max_lost` times
"""

from __future__ import annotations

from typing import Any, Literal

from rival_client.errors import RivalError
from rival_client.model.policies.step_config import Backoff as Backoff
from rival_workers.engine.retry_after import RetryAfter, seconds_to_wait

Behavior = Literal["stop", "continue", "retry"]


BEHAVIORS: tuple[str, ...] = ("stop", "continue", "retry")
BACKOFFS: tuple[str, ...] = ("none", "linear", "exponential", "jitter")


class DefinitionError(RivalError):
    """Lists all problems of a definition."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


class StepError(RivalError):
    """Raise it in a step to choose what follows. For any other exception, the options of the step decide.

    `max_attempts` can lower the step's configured maximum, never raise it. `retry_after`: the least time before another
    attempt: seconds, a timedelta, a datetime, or the text of the header `Retry-After`. `code`: a name for `retry_on`
    and `no_retry_on`.
    """

    def __init__(
        self,
        message: str,
        *,
        behavior: Behavior = "stop",
        max_attempts: int | None = None,
        backoff: Backoff | None = None,
        retry_after: RetryAfter | None = None,
        code: str | None = None,
    ) -> None:
        super().__init__(message)
        if behavior not in BEHAVIORS:
            raise ValueError(f"StepError behavior is one of {', '.join(BEHAVIORS)}, not {behavior!r}")
        if backoff is not None and backoff not in BACKOFFS:
            raise ValueError(f"StepError backoff is one of {', '.join(BACKOFFS)}, not {backoff!r}")
        self.behavior, self.max_attempts, self.backoff = behavior, max_attempts, backoff
        self.retry_after, self.code = seconds_to_wait(retry_after), code


class EventTimeout(StepError):
    """The event that a step waited for did not arrive in time."""


class InvalidResult(RivalError):
    """A step's result does not have its declared type."""


class FlowChanged(RivalError):
    """A replayed flow reached another checkpoint than before."""


class FlowStuck(RivalError):
    """A flow awaits a future that no checkpoint completes and none of its tasks sets."""


class NotInFlows(RivalError):
    """The code of a flow used something that flows cannot use; the message says what to do instead."""


class StepFailed(RivalError):
    """A step of a flow has failed finally; `error` is its stored error: type, message, traceback."""

    def __init__(self, step: str, error: dict[str, Any]) -> None:
        super().__init__(f"{step}: {error.get('type', 'Error')}: {error.get('message', '')}")
        self.step, self.error = step, error


class ChildFailed(StepFailed):
    """A child run of a flow has failed or was cancelled; `child_run` is its id, `child_step` the step that failed."""

    def __init__(self, step: str, error: dict[str, Any]) -> None:
        super().__init__(step, error)
        self.child_run, self.child_step = error.get("child_run"), error.get("child_step")
        if self.child_run is not None:
            has = f"failed at step {self.child_step!r}" if self.child_step else "has not completed"
            what = f"{error.get('type', 'Error')}: {error.get('message', '')}"
            self.args = (f"{step}: child run {self.child_run!r} {has}: {what}",)


class DeadlineExceeded(RivalError):
    """The run did not end by its deadline, and its open steps were cancelled; or a step did not, over all attempts."""


class StepTimeout(RivalError):
    """The attempt took longer than its timeout."""


class HeartbeatMissed(StepTimeout):
    """The attempt, or the external system that works on an external step, sent no heartbeat for too long."""


class IdempotencyConflict(RivalError):
    """A step with the same idempotency key has, or had, another input."""

    def __init__(self, key: str, owner: str) -> None:
        super().__init__(
            f"the idempotency key {key!r} belongs to step {owner} with another input, so the step was not called. Make "
            f"the key from all values that the result depends on; `rival key drop` frees a key."
        )


class LimitReached(RivalError):
    """A limit with `on_full="fail"` is full; or `max_waiting` steps wait for it already."""

    def __init__(self, limit: str, key: str, why: str) -> None:
        of_key = f" for key {key!r}" if key else ""
        super().__init__(
            f"limit {limit!r} is full{of_key}: {why}. Retry the step with max_retries, or raise the limit with "
            f"`rival limit set {limit} N`."
        )


class QueueTimeout(RivalError):
    """No worker has begun the step within its queue_timeout."""


class StepMovedOn(RivalError):
    """Raised by `ctx.heartbeat()`: the step was cancelled, has timed out or was taken over. The outcome of this attempt
    has no effect: do not catch the error, and clean up in a `finally`.
    """


class TaskRevoked(RivalError):
    """The attempt's Celery task was revoked, in Flower or by `celery control revoke`."""


class ExecutorLost(RivalError):
    """The step lost its executor more than `max_lost` times."""


class RetryBudgetSpent(RivalError):
    """The run has made as many retries as its `retry_budget` allows: the step is not tried again."""


class BreakerOpen(RivalError):
    """The step was not called, because its circuit breaker is open."""
