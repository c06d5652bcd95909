"""The facts about a run and its open steps from which `explain` finds the reasons."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass

from rival_client.model.starts.queues import DEFAULT_QUEUE


@dataclass(frozen=True)
class LimitFacts:
    """A limit at which something waits. `granted`: it may start, and its message is on its way."""

    name: str
    key: str
    maximum: int
    used: int
    since: dt.datetime
    granted: bool
    due_at: dt.datetime | None = None


@dataclass(frozen=True)
class KeyFacts:
    """An idempotency key that a step waits for, and the step that owns it. `granted`: it may start."""

    key: str
    owner_run: str | None
    owner_step: str | None
    since: dt.datetime
    granted: bool


@dataclass(frozen=True)
class OpenStepFacts:
    """A step that has not ended. `executor_alive`: None if it has none. `error`: of its last attempt, as text."""

    path: str
    kind: str
    status: str
    attempts: int = 0
    max_attempts: int | None = None
    created_at: dt.datetime | None = None
    started_at: dt.datetime | None = None
    due_at: dt.datetime | None = None
    timeout_at: dt.datetime | None = None
    heartbeat_at: dt.datetime | None = None
    ring_at: dt.datetime | None = None
    parked: str | None = None
    error: str | None = None
    executor: str | None = None
    executor_alive: bool | None = None
    total: int | None = None
    #: Items or lanes that have begun.
    opened: int | None = None
    remaining: int | None = None
    #: None: the fleet's own.
    queue: str | None = None
    topic: str | None = None
    key: str | None = None
    #: A kept event that nearly matches, and what differs.
    near_event: str | None = None
    near_differs: tuple[str, ...] = ()
    child: str | None = None
    child_status: str | None = None
    #: The limit that it waits for: `mail`, or `mail` of a key.
    limit: LimitFacts | None = None
    #: The idempotency key that it waits for.
    idempotency_key: KeyFacts | None = None
    #: The circuit breaker that is open, so that it was not called.
    breaker: str | None = None


@dataclass(frozen=True)
class RunFacts:
    """`waiting`: runs and steps that wait for a worker, up to a cap. `versions`: of the workflow, on live workers."""

    run_id: str
    workflow: str
    version: str
    status: str
    now: dt.datetime
    created_at: dt.datetime
    completed_at: dt.datetime | None = None
    paused_at: dt.datetime | None = None
    parked: str | None = None
    ring_at: dt.datetime | None = None
    #: It does not start before this.
    due_at: dt.datetime | None = None
    limit: LimitFacts | None = None
    failed_step: str | None = None
    error: str | None = None
    ended_by: str | None = None
    #: None: the fleet's own.
    queue: str | None = None
    live_executors: int = 0
    #: The queues that live workers serve.
    served: frozenset[str] = frozenset({DEFAULT_QUEUE})
    waiting: int = 0
    steps: Sequence[OpenStepFacts] = ()
    #: There are more open steps than these.
    more: bool = False
    #: Attempts of the failed step.
    attempts: int = 0
