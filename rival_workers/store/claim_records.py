"""Values that attempts exchange with the store: claims of steps, and the consequences of a transition."""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from rival_client.model.kinds import STEP
from rival_client.model.limits.limits import Limit
from rival_client.model.record import record
from rival_client.model.starts.queues import USUAL_ROUTE, Route
from rival_client.sql.grants import Grant
from rival_client.sql.wake import ReadyStep
from rival_workers.engine.effects import OpenRow
from rival_workers.store.flow_records import StoredFlow


@record(frozen=True)
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
    """The facts about its run that an attempt knows besides the input."""

    labels: Mapping[str, str] | None = None
    #: The deadline of the run, and the seconds until then; None for handlers and compensations of a run that fails.
    deadline_at: dt.datetime | None = None
    left: float | None = None
    #: The level of its priority, which its steps inherit.
    level: int = 0
    #: The rules that the run was given at its start, as stored.
    policies: Mapping[str, Any] | None = None


NO_FACTS = RunFacts()


@record(frozen=True)
class Claimed:
    """An attempt that this executor has claimed, with the values needed to run it."""

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
    #: The route of the step's messages.
    route: Route = USUAL_ROUTE
    #: Seconds until the deadline of the step.
    left: float | None = None
    #: If set, the function is not called: the step ends in this way, since one of its limits is full.
    refused: Refused | None = None
    #: Seconds that the step waited for a slot of its limits.
    waited: float | None = None
    #: The checkpoints and the state of the flow, if the claim has read them; then `item` was read, too.
    stored: StoredFlow | None = None


@dataclass(frozen=True)
class Refused:
    """A full limit, and what the definition says to do in this case."""

    limit: str
    key: str
    on_full: Literal["skip", "fail"]
    #: What is full: the slots, the pace, or the queue.
    why: str


@dataclass(frozen=True)
class Queued:
    """The step, or the run, waits for a slot of this limit."""

    limit: str
    key: str


@record(frozen=True)
class FinishResult:
    """The consequences of a commit: the step that the committer runs next, and the steps that need a message."""

    claimed: OpenRow | None = None
    opened: tuple[OpenRow, ...] = ()
    run_ended: bool = False
    #: The flow of the parent run, if it waited for this run.
    ready: ReadyStep | None = None
    #: The token of the opened rows; more than 0 once an operator has reopened the run.
    token: int = 0
    #: The status with which the run ended, where it is known; not set by the fast statements, which only complete runs.
    ended_as: str | None = None
    #: Tickets of steps, also of other runs, that got the slots of this step.
    grants: tuple[Grant, ...] = ()
    #: True if the clients that wait for the end of the run have been notified.
    is_announced: bool = False
    #: The step of another run that waited for the slot of this one, and that the committer runs next.
    taken: Claimed | None = None

    def token_of(self, opening: OpenRow) -> int:
        return self.token if opening.token is None else opening.token


@record(frozen=True)
class BeginResult:
    """A run that has started."""

    input: Any
    finished: FinishResult
    facts: RunFacts = NO_FACTS


@dataclass(frozen=True)
class NotYet:
    """A claim or start came too early, by this many seconds."""

    seconds: float
    route: Route = USUAL_ROUTE


@dataclass(frozen=True)
class Expired:
    """The run was started after its deadline: `expire_run` fails it."""


@dataclass(frozen=True)
class HasRules:
    """A start that was not made, because rules for this run or its labels may change how its first step opens."""

    policies: Mapping[str, Any] | None
    labels: Mapping[str, str] | None


#: The rules that the options of a first step do not include: those of its run, or also those for its labels.
Without = Literal["policies", "labels"]

BeginOutcome = BeginResult | Queued | NotYet | Expired | HasRules | WorkflowVersion | None


@dataclass(frozen=True)
class ClaimBy:
    """An executor that claims the step that it makes ready, and the workflows (name and version) that it knows."""

    executor: str
    workflows: Collection[tuple[str, str]]
    #: The time limit of each flow (`name@version/path`) that needs nothing else for a claim. A store may ignore it.
    flows: Mapping[str, float | None] = field(default_factory=dict)


@dataclass(frozen=True)
class Successor:
    """How an executor starts the step that waits for the slot of the last step of a run. A store may ignore it."""

    executor: str
    of: WorkflowVersion
    limit: Limit
    timeout: float | None = None
    policy: str | None = None
    without: Without = "policies"


@dataclass(frozen=True)
class Delivered:
    """The consequences of an event: the steps that need a message, or the one step that the deliverer has claimed."""

    ready: tuple[ReadyStep, ...] = ()
    claimed: Claimed | None = None
    workflow: str = ""
    version: str = ""


@dataclass(frozen=True)
class BeatResult:
    """An accepted heartbeat, and the seconds until the attempt times out."""

    left: float | None


@dataclass(frozen=True)
class BudgetSpent:
    """A retry that was not scheduled: the run has used up its retry budget."""

    budget: int
