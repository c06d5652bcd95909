"""The facts about a run and its open steps from which `explain` finds the reasons."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from rival_client.model.starts.queues import DEFAULT_QUEUE

#: How a report of an executor begins about calls of functions that run although their attempts are over.
ABANDONED = "attempts are over, but their functions still run"


@dataclass(frozen=True)
class LimitFacts:
    """A limit at which something waits. `granted`: it may start, when its time has come."""

    name: str
    key: str
    maximum: int
    used: int
    since: dt.datetime
    granted: bool
    #: Of a rate that has granted it: not before this.
    due_at: dt.datetime | None = None
    #: When a keeper looks at it again.
    ring_at: dt.datetime | None = None
    #: A rate limit: `max` starts per time, not `max` at once.
    is_rate: bool = False
    #: The run around this one that uses a slot.
    held_by: str | None = None


@dataclass(frozen=True)
class KeyFacts:
    """An idempotency key that a step waits for, and the step that owns it. `granted`: it may start."""

    key: str
    owner_run: str | None
    owner_step: str | None
    since: dt.datetime
    granted: bool
    ring_at: dt.datetime | None = None


@dataclass(frozen=True)
class BreakerFacts:
    """The circuit breaker because of which a step was not called, and how it is now. `state` None: it has no row."""

    name: str
    #: Since when the step waits for it.
    since: dt.datetime | None = None
    state: str | None = None
    #: When an attempt may try again; None while it is open: until an operator closes it.
    until: dt.datetime | None = None
    by: str | None = None


@dataclass(frozen=True)
class QueueFacts:
    """What waits in a queue, up to a cap (`more`), and the live workers that serve it. `slots`: the attempts that they
    can run at once; None: not all of them have reported it."""

    waiting: int = 0
    more: bool = False
    oldest: dt.datetime | None = None
    workers: int = 0
    slots: int | None = None
    busy: int = 0
    #: Attempts that are over and still use slots, as the workers report them.
    abandoned: tuple[str, ...] = ()


@dataclass(frozen=True)
class UsualFacts:
    """How long a step took when it last completed, so many times: 95 % of them at most `most` seconds."""

    times: int
    most: float


@dataclass(frozen=True)
class OpenStepFacts:
    """A step that has not ended. `executor_alive`: None if it has none. `error`: of its last attempt, as text."""

    path: str
    kind: str
    status: str
    attempts: int = 0
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
    #: The worker of the executor, and when its lease ends.
    worker: str | None = None
    lease_until: dt.datetime | None = None
    #: Of a running step: the newest log entry of its attempt; None: it has none, if that is known.
    logged_at: dt.datetime | None = None
    is_log_known: bool = False
    usual: UsualFacts | None = None
    total: int | None = None
    #: Items or lanes that have begun.
    opened: int | None = None
    remaining: int | None = None
    #: None: the fleet's own.
    queue: str | None = None
    topic: str | None = None
    key: str | None = None
    #: JSON pointers of the fields of the payload that it asks for. Their values may be secrets.
    asks: tuple[str, ...] = ()
    #: A kept event that nearly matches, and what differs.
    near_event: str | None = None
    near_differs: tuple[str, ...] = ()
    child: str | None = None
    child_status: str | None = None
    #: What the child waits for, in a sentence.
    child_why: str | None = None
    #: The limit that it waits for: `mail`, or `mail` of a key.
    limit: LimitFacts | None = None
    #: The idempotency key that it waits for.
    idempotency_key: KeyFacts | None = None
    breaker: BreakerFacts | None = None
    #: When its last attempt failed.
    failed_at: dt.datetime | None = None
    #: When its first attempt must have begun, and when it must have ended.
    start_by: dt.datetime | None = None
    deadline_at: dt.datetime | None = None


@dataclass(frozen=True)
class RunFacts:
    """A run, the workers that could continue it, and its open steps."""

    run_id: str
    workflow: str
    version: str
    status: str
    now: dt.datetime
    created_at: dt.datetime
    completed_at: dt.datetime | None = None
    paused_at: dt.datetime | None = None
    paused_by: str | None = None
    parked: str | None = None
    ring_at: dt.datetime | None = None
    #: It does not start before this.
    due_at: dt.datetime | None = None
    #: It must have ended by then.
    deadline_at: dt.datetime | None = None
    #: Starts that have become this run; None: no others do.
    gathered: int | None = None
    limit: LimitFacts | None = None
    failed_step: str | None = None
    error: str | None = None
    ended_by: str | None = None
    #: None: the fleet's own.
    queue: str | None = None
    live_executors: int = 0
    #: The queues that live workers serve.
    served: frozenset[str] = frozenset({DEFAULT_QUEUE})
    #: The queues of live workers that have the version; None: not all of them have reported what they have.
    able: frozenset[str] | None = None
    #: The versions of the workflow that live workers have, and which workers.
    versions: Mapping[str, Sequence[str]] = field(default_factory=dict)
    queues: Mapping[str, QueueFacts] = field(default_factory=dict)
    #: The broker was asked and did not answer.
    broker_away: bool = False
    steps: Sequence[OpenStepFacts] = ()
    #: There are more open steps than these.
    more: bool = False
    #: Attempts of the failed step, and the error of the first one.
    attempts: int = 0
    first_error: str | None = None
    #: The first places of the plan that a failed run has not reached, and how many there are.
    not_reached: Sequence[str] = ()
    not_reached_count: int = 0


@dataclass(frozen=True)
class Due:
    """What may start now: a run (`path` is None) or a step of it."""

    path: str | None
    since: dt.datetime | None
    ring_at: dt.datetime | None
    #: None: the fleet's own.
    queue: str | None
    #: When its first attempt must have begun.
    start_by: dt.datetime | None = None
    evidence: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return self.path or "The run"

    @property
    def in_queue(self) -> str:
        return self.queue or DEFAULT_QUEUE
