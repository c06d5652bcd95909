"""What an operator asks of a run, and the outcome."""

from __future__ import annotations

from dataclasses import dataclass, field

from rival_client.model.queues import USUAL_ROUTE, Route
from rival_workers.engine.rewind_plan import RewindPlan
from rival_workers.store.claim_records import FinishResult


@dataclass(frozen=True)
class Order:
    """What an operator asks for, and what the history records of it."""

    verb: str
    by: str
    step: str | None = None
    reason: str | None = None
    dry_run: bool = False
    #: The children that must be retried with the run have been.
    children_retried: bool = False
    #: Seconds before the steps start that the order opens.
    delay: float = 0.0
    #: Only if this is still the newest entry of the run's history.
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
    #: The runs that the steps of the cut had started.
    children: tuple[str, ...] = ()
    #: Runs that the run has spawned, and that must be retried before it. If there are any, nothing was changed unless
    #: the order says that they have been.
    retried_children: tuple[str, ...] = ()
    #: That of the run.
    route: Route = USUAL_ROUTE
