"""Steps and their attempts as plain values: what clients see of the tables."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import Any

from rival_client.model import statuses
from rival_client.model.kinds import COMPOSITE_KINDS, waits_for
from rival_client.model.statuses import StepStatus


@dataclass(frozen=True)
class Attempt:
    """An attempt that did not simply succeed the first time."""

    path: str
    attempt: int
    outcome: str
    error: dict[str, Any] | None
    executor: str | None
    started_at: dt.datetime | None
    ended_at: dt.datetime
    #: What rules of the run or of the fleet had changed of the step's options.
    policy: dict[str, Any] | None = None


@dataclass(frozen=True)
class LastError:
    """The last error a step has had, also when a later attempt succeeded."""

    type: str
    message: str
    attempt: int
    at: dt.datetime


@dataclass(frozen=True)
class Step:
    path: str
    kind: str
    status: StepStatus
    attempts: int
    lost: int
    result: Any
    state: dict[str, Any]
    error: dict[str, Any] | None
    executor: str | None
    parked: str | None
    due_at: dt.datetime | None
    timeout_at: dt.datetime | None
    created_at: dt.datetime
    started_at: dt.datetime | None
    completed_at: dt.datetime | None
    #: A composite's lanes: how many there are, how many have begun, how many have not ended.
    total: int | None = None
    opened: int | None = None
    remaining: int | None = None
    #: The item of one iteration of a for_each.
    item: Any = None
    #: Last heartbeat and progress, of steps that report them.
    heartbeat_at: dt.datetime | None = None
    progress: Any = None
    #: What it did instead of failing: its `shape` (value, retry_with, function), `overrides`, and the `error`.
    fallback: dict[str, Any] | None = None
    #: Whose workers run it (None: those of the fleet's own queue), and its priority (None: that of the run).
    queue: str | None = None
    priority: str | None = None
    #: When its first attempt must have begun, and when the step must have ended.
    start_by: dt.datetime | None = None
    deadline_at: dt.datetime | None = None
    #: What rules of the run or of the fleet have changed of its options, in its last attempt.
    policy: dict[str, Any] | None = None
    #: Only in a `RunState`: it is read from the attempts.
    last_error: LastError | None = None

    @property
    def is_composite(self) -> bool:
        """Whether its row waits until the steps below it have ended."""
        return self.kind in COMPOSITE_KINDS

    @property
    def waits_for_external(self) -> bool:
        """An external system completes it, by `timeout_at` if there is a deadline."""
        return waits_for(self.kind) == "external" and self.status == statuses.WAITING

    @property
    def description(self) -> str | None:
        return self.state.get("description")

    @property
    def retry_count(self) -> int:
        """Starts after the first one that used up an attempt."""
        return max(0, self.attempts - 1)

    @property
    def queue_time(self) -> float | None:
        """Seconds that the last start waited for a worker, from when it was due: a backoff or a delay does not
        count."""
        if self.started_at is None or self.status in (statuses.PENDING, statuses.WAITING_RETRY):
            return None
        ready = self.created_at if self.due_at is None else max(self.created_at, self.due_at)
        return max(0.0, (self.started_at - ready).total_seconds())

    @property
    def duration(self) -> float | None:
        """Seconds of the last attempt."""
        if self.started_at is None or self.completed_at is None:
            return None
        return (self.completed_at - self.started_at).total_seconds()
