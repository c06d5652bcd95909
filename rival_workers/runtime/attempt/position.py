"""A step before a transition, and the messages that follow from it."""

from __future__ import annotations

from dataclasses import dataclass

from rival_client.broker.message import StepMessage
from rival_client.model import statuses
from rival_client.model.kinds import STEP
from rival_client.model.queues import USUAL_ROUTE, Route
from rival_client.model.step_config import StepConfig
from rival_workers.engine import interpreter
from rival_workers.engine.decisions import End, FallBack
from rival_workers.engine.effects import Advance, OpenRow
from rival_workers.engine.paths import FALLBACK
from rival_workers.engine.policies import Policies
from rival_workers.runtime.attempt.context import lazy
from rival_workers.store.claim_records import Claim, FinishResult

SUCCEEDED = (statuses.COMPLETED, statuses.SKIPPED)


@dataclass(frozen=True)
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
    #: When the step must have ended, by the monotonic clock of this process.
    until: float | None = None

    @lazy
    def config(self) -> StepConfig:
        return self.policies.at(self.claim.path)

    def advance(self, end: End | FallBack, policies: Policies) -> Advance:
        """`policies`: of the steps that open now."""
        # What follows from the success of a plain step depends on nothing else.
        if self.kind != STEP or end.status not in SUCCEEDED or "[" in self.claim.path:
            return self._advance(end, policies)
        found = policies.advances.get(self.claim.path)
        if found is None:
            found = policies.advances[self.claim.path] = self._advance(end, policies)
        return found

    def _advance(self, end: End | FallBack, policies: Policies) -> Advance:
        path = self.claim.path
        base = path.removesuffix(FALLBACK)
        instead = policies.at(base).on_failure if base != path else "halt"
        advance = interpreter.advance(policies.plan, path, end, self.kind, on_failure=instead)
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
