"""The options of steps, for type checkers. `checked_options` checks the values at run time; a test compares both."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from rival_client.model.limits.idempotency_records import Scope
from rival_client.model.limits.limits import Limit
from rival_client.model.policies.fallback_option import FallbackOption, RetryWith, Value
from rival_client.model.policies.step_config import Backoff, ExecutionMode, FailureAction, LogLevel
from rival_client.model.starts.priorities import Priority

if TYPE_CHECKING:
    from rival_workers.definition.schedules import Schedule

#: Seconds, or a timedelta.
Duration = float | dt.timedelta
#: Classes of exceptions, their names and patterns of them, and codes of StepErrors.
ErrorNames = type[BaseException] | str | Sequence[type[BaseException] | str]
#: For the matchers of policies.
Tags = str | Sequence[str]


class QueueOptions(TypedDict, total=False):
    """Which workers run it, when they start it, and how long it may wait for them."""

    queue: str | None
    priority: Priority | None
    queue_timeout: Duration | None


class WorkflowOptions(TypedDict, total=False):
    """What a workflow says about its runs as a whole."""

    schedule: Schedule | str | float | dt.timedelta | None
    #: How long its ended runs are kept; 0: for ever.
    retention: Duration | None
    concurrency_limit: int | Limit | Sequence[int | Limit] | None
    rate_limit: Limit | Sequence[Limit] | None
    hooks: Mapping[str, Any] | None
    #: Of all its steps, unless they have their own.
    queue: str | None
    priority: Priority | None
    #: A cancelled run is undone like a failed one.
    compensate_on_cancel: bool


class StartOptions(TypedDict, total=False):
    """When a step starts at the earliest."""

    delay: Duration | None
    scheduled_at: dt.datetime | None


class RetryOptions(TypedDict, total=False):
    """Retries, and the limits of an attempt without progress."""

    max_attempts: int | None
    max_retries: int | None
    retry_on: ErrorNames | None
    no_retry_on: ErrorNames
    max_retry_after: Duration
    backoff: Backoff | None
    base_delay: Duration
    max_delay: Duration
    heartbeat: Duration | None
    kill_on_timeout: bool
    metadata: dict[str, Any]
    log_level: LogLevel | None
    telemetry_prefix: str | None


class LimitOptions(TypedDict, total=False):
    """How many attempts run at once, and how many start per time, in the whole fleet."""

    concurrency_limit: int | Limit | Sequence[int | Limit] | None
    rate_limit: Limit | Sequence[Limit] | None


class IdempotencyOptions(TypedDict, total=False):
    """Steps with the same key run once, also in different runs."""

    idempotency_key: str | Callable[..., Any] | None
    idempotency_ttl: Duration
    idempotency_scope: Scope


class WaitOptions(RetryOptions, QueueOptions, total=False):
    """Of `wait_event_step`, whose `timeout` and `on_timeout` are about the event."""

    tags: Tags
    retry_budget: int | None
    on_error: Callable[..., Any] | None
    execution_mode: Literal["durable", "inline"]


class AttemptOptions(RetryOptions, total=False):
    timeout: Duration | None
    on_timeout: Literal["stop", "retry"] | None


class CompositeOptions(AttemptOptions, QueueOptions, total=False):
    """Of `branch`, `parallel`, `for_each`, `loop` and `workflow`."""

    tags: Tags
    retry_budget: int | None
    on_error: Callable[..., Any] | None
    execution_mode: Literal["durable", "inline"]


class FlowStepOptions(AttemptOptions, total=False):
    """Of `ctx.step` in a flow."""

    tags: Tags
    name: str | None
    on_failure: Literal["halt", "skip"]
    fallback: Value | None
    execution_mode: Literal["durable", "inline"]


class PolicyOptions(AttemptOptions, LimitOptions, QueueOptions, StartOptions, IdempotencyOptions, total=False):
    """Of a rule in `policies`."""

    #: Functions that a worker calls around the attempts of the steps; not in rules of runs and of the fleet.
    hooks: Mapping[str, Any] | None
    retry_budget: int | None
    circuit_breaker: Mapping[str, Any] | None
    on_failure: FailureAction
    fallback: Value | RetryWith | None
    execution_mode: ExecutionMode
    deadline: Duration | None


class PredefinedOptions(RetryOptions, LimitOptions, QueueOptions, StartOptions, IdempotencyOptions, total=False):
    """Of `http_step` and `shell_step`, which have `name` and `timeout` among their own parameters."""

    tags: Tags
    retry_budget: int | None
    on_timeout: Literal["stop", "retry"] | None
    on_error: Callable[..., Any] | None
    compensate: Callable[..., Any] | None
    circuit_breaker: Mapping[str, Any] | None
    on_failure: FailureAction
    fallback: FallbackOption
    execution_mode: ExecutionMode
    deadline: Duration | None


class TaskOptions(PredefinedOptions, total=False):
    """Of `celery_step`."""

    timeout: Duration | None


class StepOptions(TaskOptions, total=False):
    """Of `step(function, …)`."""

    name: str | None


class DelayUnits(TypedDict, total=False):
    """Of `.delay(name, minutes=5)`; what is given is added up."""

    duration: Duration | None
    seconds: float | None
    minutes: float | None
    hours: float | None
    days: float | None


class SleepUnits(TypedDict, total=False):
    """Of `ctx.sleep(days=3)`; what is given is added up."""

    weeks: float
    days: float
    hours: float
    minutes: float
    seconds: float
    milliseconds: float
    microseconds: float


class EventFilter(TypedDict, total=False):
    """Which events `ctx.await_event` waits for, beside their topic."""

    key: str | None
    where: Mapping[str, Any] | None
