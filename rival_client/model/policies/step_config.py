"""The options of a step: one flat, frozen value in which every field has a default that means "unused".

A field is declared once, here. The checks of definitions, the rules of policies and the reference table in the
documentation read the declarations.
"""

from __future__ import annotations

import datetime as dt
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from rival_client.model.limits.idempotency import DAY, IdempotencyKey
from rival_client.model.limits.idempotency_records import Scope
from rival_client.model.limits.limits import Limit
from rival_client.model.policies.breakers import Breaker
from rival_client.model.policies.fallbacks import Fallback
from rival_client.model.starts.priorities import Priority, level_of
from rival_client.model.starts.queues import QUEUE_EXPECTED, Route, is_queue

#: What follows when a step has finally failed and its fallback, if it has one, has failed too.
FailureAction = Literal["halt", "skip", "fallback", "compensate", "dead_letter"]
LogLevel = Literal["debug", "info", "warning", "error"]
#: Where a step runs. Only "external" is part of the plan: another kind of row.
ExecutionMode = Literal["durable", "inline", "external"]
Backoff = Literal["none", "linear", "exponential", "jitter"]
#: What has options: a step, an external step, the function of a composite or of a wait (`when`, `items`, `key`, …), a
#: flow as a whole, and a step that a flow calls.
Target = Literal["step", "external", "function", "flow", "flow_step"]
TARGETS: tuple[Target, ...] = ("step", "external", "function", "flow", "flow_step")


def option(
    default: Any,
    description: str,
    *,
    targets: tuple[Target, ...] = TARGETS,
    duration: bool = False,
    **constraints: Any,
) -> Any:
    """A field. `duration`: seconds, or a timedelta where users write it."""
    about: dict[str, Any] = {"targets": list(targets), "duration": duration}
    return Field(default, description=description, json_schema_extra=about, **constraints)


def amount(default: Any, description: str, **about: Any) -> Any:
    """A number or a flag. Strict: True is not a number, "5" is not five seconds and "yes" is not a flag."""
    return option(default, description, strict=True, **about)


class StepConfig(BaseModel):
    """The resolved options of one step. Durations are seconds."""

    # No database stores an infinite duration.
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    timeout: float | None = amount(None, "Seconds that an attempt may take.", duration=True, gt=0)
    on_timeout: Literal["stop", "retry"] | None = option(
        None, "What follows from a timeout. Without it: a retry with `max_retries`, else the end of the step."
    )
    kill_on_timeout: bool = amount(
        False, "Kill the process that still runs the attempt after its timeout (prefork only)."
    )
    max_retries: int | None = amount(None, "How many times every exception is retried.", ge=0)
    max_attempts: int | None = amount(None, "The most attempts, if an error asks for a retry.", ge=1)
    retry_on: tuple[str, ...] | None = option(
        None, "Only these errors are retried with `max_retries`; with `max_attempts` they ask for a retry."
    )
    no_retry_on: tuple[str, ...] = option((), "Errors that are never retried.")
    backoff: Backoff | None = option(None, "How the delay between attempts grows; linear if nothing is given.")
    base_delay: float = amount(0.5, "The delay after the first attempt, in seconds.", duration=True, ge=0)
    max_delay: float = amount(30.0, "The longest delay between two attempts, in seconds.", duration=True, ge=0)
    max_retry_after: float = amount(
        3600.0, "The longest time that an error can ask to wait before a retry.", duration=True, ge=0
    )
    heartbeat: float | None = amount(
        None, "Seconds without a heartbeat after which the attempt times out.", duration=True, gt=0
    )
    execution_mode: ExecutionMode = option(
        "durable",
        '"inline": it runs right after the step before, in the same process and without a message; quick ones that '
        'follow each other are committed together. "external": its function only begins it, and an external system '
        "completes it; only for a step, and not in rules.",
    )
    deadline: float | None = amount(
        None,
        "Seconds from the opening of the step to its end, over all attempts; for an external step, from the return of "
        "its function.",
        targets=("step", "external"),
        duration=True,
        gt=0,
    )
    delay: float | None = amount(
        None,
        "Seconds from the opening of the step to its first attempt.",
        targets=("step", "external", "flow"),
        duration=True,
        ge=0,
    )
    scheduled_at: dt.datetime | None = option(
        None, "When the first attempt starts at the earliest.", targets=("step", "external", "flow")
    )
    queue_timeout: float | None = amount(
        None,
        "Seconds that the first attempt may wait for a worker; a `delay` does not count.",
        targets=("step", "external", "function", "flow"),
        duration=True,
        gt=0,
    )
    queue: str | None = option(
        None,
        "The queue whose workers run the step; the fleet's own if nothing is given.",
        targets=("step", "external", "function", "flow"),
    )
    priority: Priority | None = option(
        None,
        "Which steps of a queue workers start first; that of the run if nothing is given.",
        targets=("step", "external", "function", "flow"),
    )
    on_failure: FailureAction = option(
        "halt",
        "What follows when the step has finally failed and has not fallen back.",
        targets=("step", "external", "flow", "flow_step"),
    )
    fallback: Fallback | None = option(
        None,
        "What the step does instead of failing, once, before `on_failure`; as JSON "
        '`{"value": 5}` or `{"retry_with": {"model": "mini"}}`.',
        targets=("step", "external", "flow", "flow_step"),
    )

    retry_budget: int | None = amount(
        None,
        "The most retries of all steps of the run that have a budget, together.",
        targets=("step", "external", "function", "flow"),
        ge=0,
    )
    concurrency_limit: tuple[Limit, ...] = option(
        (), "How many attempts run at once, in the whole fleet.", targets=("step", "external", "flow")
    )
    rate_limit: tuple[Limit, ...] = option(
        (), "How many attempts start per time, in the whole fleet, evenly spaced.", targets=("step", "external", "flow")
    )

    @field_validator("scheduled_at", mode="before")
    @classmethod
    def _is_time(cls, at: object) -> object:
        if isinstance(at, int | float):
            raise ValueError(f"{at} is not a time: give datetime.now(UTC) + timedelta(hours=1)")
        return at

    @field_validator("scheduled_at")
    @classmethod
    def _has_time_zone(cls, at: dt.datetime | None) -> dt.datetime | None:
        if at is not None and at.tzinfo is None:
            raise ValueError("give a time with a time zone, such as datetime.now(UTC) + timedelta(hours=1)")
        return at

    @field_validator("queue")
    @classmethod
    def _is_queue(cls, queue: str | None) -> str | None:
        if queue is not None and not is_queue(queue):
            raise ValueError(f"give {QUEUE_EXPECTED}")
        return queue

    @property
    def limits(self) -> tuple[Limit, ...]:
        return self.concurrency_limit + self.rate_limit

    circuit_breaker: Breaker | None = option(
        None, "Stops the calls of all steps with this breaker while what they call is broken.", targets=("step",)
    )

    idempotency_key: IdempotencyKey | None = option(
        None,
        "Steps with the same key run once, also in different runs: the others use the result.",
        targets=("step", "external", "flow"),
    )
    idempotency_ttl: float = amount(
        DAY,
        "Seconds from its end for which others use the result.",
        targets=("step", "external", "flow"),
        duration=True,
        gt=0,
    )
    idempotency_scope: Scope = option(
        "step",
        "Whether the step, all steps of the workflow or all of the fleet share the key.",
        targets=("step", "external", "flow"),
    )

    metadata: dict[str, Any] = option({}, "Values for logs, hooks and signals; `ctx.metadata` in the step.")
    log_level: LogLevel | None = option(None, "The lowest level of `log` that is written.")
    telemetry_prefix: str | None = option(None, "A prefix of the label that hooks and signals get.")

    @property
    def is_external(self) -> bool:
        return self.execution_mode == "external"

    @property
    def is_inline(self) -> bool:
        return self.execution_mode == "inline"

    @property
    def limit(self) -> float | None:
        """Seconds after its start at which an attempt times out, without a heartbeat. The heartbeats of an external
        step are those of the external system: they count from the return of its function."""
        if self.heartbeat is None or self.is_external:
            return self.timeout
        return shortest(self.timeout, self.heartbeat)

    @property
    def step_deadline(self) -> float | None:
        """Seconds from the opening to the end of the step. That of an external system begins later."""
        return None if self.is_external else self.deadline

    @property
    def opens_plainly(self) -> bool:
        """The row of the step has no values of these options. Not cached: a copy with other options would keep it."""
        own = (self.queue, self.priority, self.step_deadline, self.queue_timeout, self.delay, self.scheduled_at)
        return own == (None,) * len(own)

    def route(self, run_level: int) -> Route:
        """Where messages of the step go, in a run of this level."""
        level = level_of(self.priority)
        return Route(self.queue, run_level if level is None else level)

    def routed_as(self, other: StepConfig) -> StepConfig:
        """These options, with the route of others."""
        if other.queue is None and other.priority is None:
            return self
        return self.model_copy(update={"queue": other.queue, "priority": other.priority})

    @property
    def of_compensation(self) -> StepConfig:
        """The options of the step's compensation: retries and timeout of the step, run by a worker."""
        return self.model_copy(update={**_OF_A_REACTION, "heartbeat": None})

    @property
    def of_fallback(self) -> StepConfig:
        """The options of the step's fallback function: one attempt, with the timeout of the step."""
        once = {"max_attempts": 1, "max_retries": None, "retry_on": None, "on_timeout": None, "heartbeat": None}
        return self.model_copy(update={**_OF_A_REACTION, **once})

    @property
    def patience(self) -> float | None:
        """Seconds that an external step waits without a heartbeat or completion."""
        return shortest(self.deadline, self.heartbeat)


#: A compensation and a fallback are run by a worker, and their failures are their own.
_OF_A_REACTION = {
    "execution_mode": "durable",
    "on_failure": "halt",
    **dict.fromkeys(("fallback", "deadline", "delay", "scheduled_at", "queue_timeout")),
    # A failure that waits for a slot would hold up its run for as long as others use the limit.
    "concurrency_limit": (),
    "rate_limit": (),
    "circuit_breaker": None,
    "idempotency_key": None,
}


def shortest(*durations: float | None) -> float | None:
    return min((one for one in durations if one is not None), default=None)
