"""A step before a transition: its place in the plan, its options, and the messages that the transition causes."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from itertools import chain

from rival_client.broker.message import StepMessage
from rival_client.model import statuses
from rival_client.model.kinds import STEP
from rival_client.model.lazy import lazy
from rival_client.model.policies.rulebook import NO_RULES, Rulebook
from rival_client.model.policies.step_config import StepConfig
from rival_client.model.record import record
from rival_client.model.starts.queues import USUAL_ROUTE, Route, ServedQueues
from rival_workers.definition.registry import Registry
from rival_workers.engine import interpreter, paths
from rival_workers.engine.decisions import End, FallBack
from rival_workers.engine.effects import Advance, OpenRow
from rival_workers.engine.paths import FALLBACK
from rival_workers.engine.policies import Policies, load_policies
from rival_workers.engine.step_limits import limits_at
from rival_workers.store.claim_records import Claim, FinishResult, Successor, Without, WorkflowVersion
from rival_workers.store.interface import Store

log = logging.getLogger("rival.transitions")

#: Seconds after which the options of a version are read again whose code this worker does not have.
REREAD_AFTER = 10.0
SUCCEEDED = (statuses.COMPLETED, statuses.SKIPPED)


@record(frozen=True)
class Position:
    """A step before a transition: its claim, its place in the plan, and its options."""

    claim: Claim
    workflow: str
    version: str
    policies: Policies
    attempt: int
    lost: int
    #: The kind of its row. It decides, for example, whether the run continues after a handler.
    kind: str
    #: Where messages of the step go.
    route: Route = USUAL_ROUTE
    #: The level of the run, which its steps inherit.
    run_level: int = 0
    #: The labels of the run, for rules that the fleet gets during the attempt.
    labels: Mapping[str, str] | None = None
    #: When the step must have ended, by the monotonic clock of this process.
    until: float | None = None

    @lazy
    def config(self) -> StepConfig:
        return self.policies.at(self.claim.path)

    def policies_under(self, book: Rulebook) -> Policies:
        """With the rules that the fleet has now."""
        return self.policies.under(book, self.labels or self.policies.labels)

    def advance(self, end: End | FallBack, policies: Policies) -> Advance:
        """`policies`: of the steps that open now."""
        # What follows from the success of a plain step depends on nothing else.
        if self.kind != STEP or end.status not in SUCCEEDED:
            return self._advance(end, policies)
        path = self.claim.path
        if "[" in path:
            return self._advance_in_item(end, policies)
        found = policies.advances.get(path)
        if found is None:
            found = policies.advances[path] = self._advance(end, policies)
        return found

    def _advance_in_item(self, end: End | FallBack, policies: Policies) -> Advance:
        """At the end of each lane of a for_each the same, except for the item."""
        place = paths.place_of(self.claim.path)
        found = policies.advances.get(place)
        if found is not None:
            return found.of_item(paths.scope_of(self.claim.path)[:-1])
        found = self._advance(end, policies)
        if found.lane is not None and place.count("[") == 1:
            policies.advances[place] = found
        return found

    def _advance(self, end: End | FallBack, policies: Policies) -> Advance:
        path = self.claim.path
        base = path.removesuffix(FALLBACK)
        instead = policies.at(base).on_failure if base != path else "halt"
        undo = policies.document.on_cancel == "compensate"
        advance = interpreter.advance(policies.plan, path, end, self.kind, on_failure=instead, undo_cancelled=undo)
        return advance.with_options(policies.at, policies.recorded)

    def message(self, token: int, *, attempt: int = 1, lost: int = 0, countdown: float = 0.0) -> StepMessage:
        """For the step itself."""
        step = (self.claim.run_id, self.claim.path, token, self.workflow, self.version)
        return StepMessage(*step, attempt, lost, countdown, self.route)

    def message_to(self, opened: OpenRow, finished: FinishResult) -> StepMessage:
        """For a step that its end has opened."""
        route = self.policies.at(opened.path).route(self.run_level) if opened.route is None else opened.route
        step = (self.claim.run_id, opened.path, finished.token_of(opened), self.workflow, self.version)
        return StepMessage(*step, countdown=opened.delay, route=route)


@record(frozen=True)
class InPlace:
    """The process that ends a step, if it may go on with what follows, without a message."""

    executor: str
    served: ServedQueues
    #: With inline steps alone: it has used up its continuation budget.
    only_inline: bool = False
    #: The step had to wait for its slot, so others may wait behind it.
    after_waiting: bool = False

    def claims(self, advance: Advance) -> tuple[Advance, str | None]:
        """The effects that the commit applies, and the executor for which it claims the next step."""
        if not self.only_inline:
            return advance, self.executor
        return (advance, None) if advance.inline is None else (advance.inline, self.executor)

    def takes(self, config: StepConfig) -> bool:
        """It claims the step by itself, after the commit that has opened it: the step has limits."""
        return bool(config.limits) and (config.is_inline or not self.only_inline)

    def successor(self, position: Position, advance: Advance, book: Rulebook) -> Successor | None:
        """How the commit that ends the run starts the step that gets the slot."""
        if not self.after_waiting or self.only_inline or not advance.completes_run:
            return None
        policies, path = position.policies.base.over(None, book, None), position.claim.path
        config, of = policies.at(path), WorkflowVersion(position.workflow, position.version)
        its_limits = limits_at(position.workflow, path, config)
        if len(its_limits) != 1:
            return None
        without: Without = "labels" if book.asks_for_labels else "policies"
        return Successor(self.executor, of, its_limits[0], config.limit, policies.recorded(path), without)

    def message(self, position: Position, finished: FinishResult) -> StepMessage | None:
        """Returns the message of a step that this worker can claim at once, if the commit itself has claimed none: the
        next step of the run, or else the first step that the commit has granted a slot."""
        if finished.claimed is not None or finished.taken is not None:
            return None
        opened = [one for one in finished.opened if not one.delay and self.takes(position.policies.at(one.path))]
        granted = (one.message for one in finished.grants if one.path and not one.countdown and not self.only_inline)
        own = (position.message_to(one, finished) for one in opened)
        return next((one for one in chain(own, granted) if one.route.queue in self.served), None)


class RunOptions:
    """The options of runs whose steps this process decides about without running them: a keeper's timeouts and
    takeovers, a revoke. It may not have the code of their workflows."""

    def __init__(self, store: Store, registry: Registry) -> None:
        self._store, self._registry = store, registry
        #: The rules of the fleet, as this process knows them.
        self.book: Callable[[], Rulebook] = lambda: NO_RULES
        #: Of versions whose code this worker does not have: when they were read, and what.
        self._read: dict[tuple[str, str], tuple[float, Policies]] = {}

    def of(self, workflow: str, version: str, run_id: str) -> Policies | None:
        """With the rules of the run and of the fleet: a decision that no attempt makes is made with those of now."""
        base = self._of_workflow(workflow, version)
        if base is None:
            return None
        rules, labels = self._store.read_run_rules(run_id)
        return base.over(rules, self.book(), labels)

    def _of_workflow(self, workflow: str, version: str) -> Policies | None:
        """Read again now and then: another worker may have registered other options for the same version."""
        definition = self._registry.find(workflow, version)
        if definition is not None:
            return definition.policies
        key = (workflow, version)
        read_at, found = self._read.get(key, (0.0, None))
        if found is not None and time.monotonic() < read_at + REREAD_AFTER:
            return found
        info = self._store.load_workflow(workflow, version)
        if info is None:
            log.error("workflow %s version %s is not in the database: its runs cannot continue", *key)
            return None
        found = load_policies(info.name, info.plan, info.policies)
        self._read[key] = (time.monotonic(), found)
        return found
