"""The order of an operator, and its outcome."""

from __future__ import annotations

from dataclasses import dataclass, field

from rival_client.model.starts.queues import USUAL_ROUTE, Route
from rival_workers.engine.rewind_plan import RewindPlan
from rival_workers.store.claim_records import FinishResult


@dataclass(frozen=True)
class Order:
    """What an operator asks for, as recorded in the history."""

    verb: str
    by: str
    step: str | None = None
    reason: str | None = None
    dry_run: bool = False
    #: True if the children that must be retried with the run have been retried.
    children_retried: bool = False
    #: Seconds before the steps that the order opens may start.
    delay: float = 0.0
    #: Apply only if this is still the newest entry of the run's history.
    if_entry: int | None = None


@dataclass(frozen=True)
class Operated:
    """The outcome of an order."""

    workflow: str
    version: str
    finished: FinishResult = field(default_factory=FinishResult)
    cut: RewindPlan = field(default_factory=RewindPlan)
    #: The token of a run that must be begun.
    begin: int | None = None
    #: The runs that the rewound steps had started.
    children: tuple[str, ...] = ()
    #: Spawned runs that must be retried before this one. If there are any, nothing was changed, unless the order says
    #: that they have been retried.
    retried_children: tuple[str, ...] = ()
    #: The route of the run.
    route: Route = USUAL_ROUTE
