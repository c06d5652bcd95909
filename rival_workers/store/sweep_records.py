"""Rows as read by code that does not run them: the keeper, an executor that compares, a revoke."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rival_client.model import statuses
from rival_client.model.starts.queues import USUAL_ROUTE, Route
from rival_client.model.timers import NEVER_PUBLISHED
from rival_workers.store.claim_records import Claim


@dataclass(frozen=True)
class Fired:
    """A run that a schedule has started."""

    run_id: str
    workflow: str
    version: str
    route: Route = USUAL_ROUTE


@dataclass(frozen=True)
class Due:
    """A row that is due. `path` None: a run that has not begun."""

    run_id: str
    path: str | None
    status: str
    token: int
    timeout_token: int
    attempts: int
    lost: int
    #: How often the keeper has found it due before; NEVER_PUBLISHED: no message was published for it.
    rings: int
    workflow: str
    version: str
    kind: str
    due_in: float
    #: The deadline of the run has passed.
    expired: bool = False
    route: Route = USUAL_ROUTE
    #: Seconds until the queue timeout, and until the deadline of the step.
    start_in: float | None = None
    left: float | None = None
    #: True if the row has just risen to this level of priority.
    rising: bool = False

    @property
    def must_be_published(self) -> bool:
        """True if the queue of its route has no message of it."""
        return self.rings == NEVER_PUBLISHED or self.rising

    @property
    def has_limit(self) -> bool:
        return self.start_in is not None or self.left is not None


@dataclass(frozen=True)
class DueEvent:
    """An event that no worker has delivered yet. `rings`: as in Due."""

    id: str
    topic: str
    rings: int
    route: ClassVar[Route] = USUAL_ROUTE

    @property
    def must_be_published(self) -> bool:
        return self.rings == NEVER_PUBLISHED


@dataclass(frozen=True)
class RunningAttempt:
    """An attempt as stored, for code that does not run it: the keeper, a revoke."""

    claim: Claim
    attempts: int
    lost: int
    executor: str
    workflow: str
    version: str
    kind: str
    route: Route = USUAL_ROUTE
    #: Seconds until the deadline of the step.
    left: float | None = None


@dataclass(frozen=True)
class NamedAttempt:
    """An unfinished step that a task id refers to. `attempts`: how many have begun; `executor`: that of the
    last one."""

    claim: Claim
    status: str
    attempts: int
    lost: int
    executor: str | None
    workflow: str
    version: str
    kind: str
    route: Route = USUAL_ROUTE

    def running(self, claim: Claim) -> RunningAttempt:
        """The attempt under the token of its claim."""
        number = self.attempts + (self.status != statuses.RUNNING)
        named = (self.workflow, self.version, self.kind)
        return RunningAttempt(claim, number, self.lost, self.executor or "", *named, self.route)


@dataclass(frozen=True)
class ExecutorRow:
    id: str
    pid: int
    worker: str


@dataclass(frozen=True)
class SweepOptions:
    """How many due rows the keeper takes at once, and when they become due again."""

    limit: int
    #: Seconds until a row is due again after its first message; doubled with each further one, up to the maximum.
    backoff: float
    backoff_max: float
