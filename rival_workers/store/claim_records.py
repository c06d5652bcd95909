"""Claims of steps, and what follows from a transition: the values that attempts exchange with the store."""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from rival_client.model.idempotency_records import KeyName
from rival_client.model.kinds import STEP
from rival_client.model.payload import Json
from rival_client.model.queues import USUAL_ROUTE, Route
from rival_client.sql.gates import Grant
from rival_client.sql.wake import ReadyStep
from rival_workers.engine.effects import OpenRow


@dataclass(frozen=True)
class Claim:
    """The row and the token that the caller of a transition holds."""

    run_id: str
    path: str
    token: int
    guard: Literal["execution_token", "timeout_token"] = "execution_token"

    @property
    def where(self) -> tuple[str, str]:
        return self.run_id, self.path


@dataclass(frozen=True)
class WorkflowVersion:
    """The workflow that a message names. A message is untrusted: the run's row must name the same."""

    workflow: str
    version: str


@dataclass(frozen=True)
class RunFacts:
    """What an attempt knows of its run besides the input."""

    labels: Mapping[str, str] | None = None
    #: By when it must have ended, and the seconds until then. None once it fails: handlers and compensations have time.
    deadline_at: dt.datetime | None = None
    left: float | None = None
    #: The level of its priority, which its steps inherit.
    level: int = 0
    #: The rules that the run was given at its start, as stored.
    policies: Mapping[str, Any] | None = None


NO_FACTS = RunFacts()


@dataclass(frozen=True)
class Claimed:
    """An attempt that this executor has claimed, with what it needs to run it."""

    run_id: str
    path: str
    token: int
    timeout_token: int
    attempt: int
    lost: int
    input: Any
    kind: str = STEP
    #: The item of the row, if the claim has read it.
    item: Any = None
    facts: RunFacts = NO_FACTS
    #: Where messages of the step go.
    route: Route = USUAL_ROUTE
    #: Seconds until the deadline of the step.
    left: float | None = None
    #: Its function is not called: the step ends like this, since one of its limits is full.
    refused: Refused | None = None
    #: Seconds that it has waited for a slot of its limits.
    waited: float | None = None


@dataclass(frozen=True)
class Refused:
    """A limit that is full, and what the definition says to do then."""

    limit: str
    key: str
    max: int
    on_full: Literal["skip", "fail"]
    #: Too many wait already.
    is_crowded: bool = False


@dataclass(frozen=True)
class Queued:
    """The step, or the run, waits for a slot of this limit."""

    limit: str
    key: str


@dataclass(frozen=True)
class FinishResult:
    """What follows from a commit: the step that the committer runs next, the steps that need a message, the end."""

    claimed: OpenRow | None = None
    opened: tuple[OpenRow, ...] = ()
    run_ended: bool = False
    #: The flow of the parent run, if it waited for this run.
    ready: ReadyStep | None = None
    #: The token of the opened rows; more than 0 once an operator has reopened the run.
    token: int = 0
    #: The status that the run has ended with, where it is known: not after the fast statements, which only complete.
    ended_as: str | None = None
    #: Steps, also of other runs, that have waited for the slots of this one.
    grants: tuple[Grant, ...] = ()
    #: The clients that wait for the end of the run are notified already.
    is_announced: bool = False

    def token_of(self, opening: OpenRow) -> int:
        return self.token if opening.token is None else opening.token


@dataclass(frozen=True)
class BeginResult:
    """A run that has started."""

    input: Any
    finished: FinishResult
    facts: RunFacts = NO_FACTS


@dataclass(frozen=True)
class NotYet:
    """A claim before the step is due, or a start before the run is; and the seconds that are left."""

    seconds: float
    route: Route = USUAL_ROUTE


@dataclass(frozen=True)
class Expired:
    """A start after the deadline of the run: it is left to `expire_run`."""


@dataclass(frozen=True)
class HasRules:
    """A start that was not made: rules of this run, or rules for its labels, may say how its first step opens."""

    policies: Mapping[str, Any] | None
    labels: Mapping[str, str] | None


#: What the options of a first step were made without: the rules of its run, or also the labels of its run.
Without = Literal["policies", "labels"]


Begun = BeginResult | Queued | NotYet | Expired | HasRules | WorkflowVersion | None


@dataclass(frozen=True)
class ClaimBy:
    """An executor that claims the step it makes ready, and the workflows (name and version) that it knows."""

    executor: str
    workflows: Collection[tuple[str, str]]


@dataclass(frozen=True)
class Delivered:
    """What follows from an event: the steps that need a message, or the one step that the deliverer has claimed."""

    ready: tuple[ReadyStep, ...] = ()
    claimed: Claimed | None = None
    workflow: str = ""
    version: str = ""


@dataclass(frozen=True)
class BeatResult:
    """A heartbeat that was accepted, and the seconds until the attempt times out."""

    left: float | None


@dataclass(frozen=True)
class BudgetSpent:
    """A retry that was not scheduled: the run has made as many as it may."""

    budget: int


@dataclass(frozen=True)
class KeyClaim:
    """The idempotency key that a step asks for. `path`: of the step; the row that runs is that of its flow, if it has
    one. `ttl`: seconds for which its result is kept."""

    name: KeyName
    path: str
    fingerprint: str
    ttl: float


@dataclass(frozen=True)
class KeyAnswer:
    """Owned: the step is called. Reused: the result is the step's, too. Conflict: the key belongs to another input.
    Queued: the step waits. `run_id`, `path`: the step that has the key."""

    state: Literal["owned", "reused", "conflict", "queued"]
    result: Json | None = None
    run_id: str | None = None
    path: str | None = None


@dataclass(frozen=True)
class BreakerAnswer:
    """Whether a step with a circuit breaker may be called."""

    goes: bool
    probes: bool = False
    #: Seconds until it is worth asking again; None: an operator has opened it for good.
    seconds: float | None = None
