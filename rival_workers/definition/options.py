"""The options of steps, for type checkers. `checked_config` checks the values at run time; a test compares both."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping
from typing import Any, Literal, TypedDict

from rival_workers.errors import Backoff

#: Seconds, or a timedelta.
Duration = float | dt.timedelta


class RetryOptions(TypedDict, total=False):
    """Retries, and the limits of an attempt without progress."""

    max_attempts: int | None
    max_retries: int
    backoff: Backoff | None
    base_delay: Duration
    max_delay: Duration
    heartbeat: Duration | None
    kill_on_timeout: bool


class WaitOptions(RetryOptions, total=False):
    """Of `wait_event_step`, whose `timeout` and `on_timeout` are about the event."""

    on_error: Callable[..., Any] | None


class AttemptOptions(RetryOptions, total=False):
    timeout: Duration | None
    on_timeout: Literal["stop", "retry"]


class CompositeOptions(AttemptOptions, total=False):
    """Of `branch`, `parallel`, `for_each`, `loop` and `workflow`."""

    on_error: Callable[..., Any] | None


class FlowStepOptions(AttemptOptions, total=False):
    """Of `ctx.step` in a flow."""

    name: str | None


class PolicyOptions(AttemptOptions, total=False):
    """Of a rule in `policies`."""

    execution_mode: Literal["durable", "external"]
    deadline: Duration | None


class PredefinedOptions(RetryOptions, total=False):
    """Of `http_step` and `shell_step`, which have `name` and `timeout` among their own parameters."""

    on_timeout: Literal["stop", "retry"]
    on_error: Callable[..., Any] | None
    compensate: Callable[..., Any] | None
    execution_mode: Literal["durable", "external"]
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
