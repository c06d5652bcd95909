"""One attempt as a value, made from a claim or from the attempt before it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace
from typing import Any, Literal

from rival_client.model.lazy import lazy
from rival_client.model.policies.rulebook import Rulebook
from rival_client.model.policies.step_config import StepConfig
from rival_client.model.record import record
from rival_workers.definition.workflow import WorkflowDefinition
from rival_workers.engine.decisions import End, Failure, FallBack
from rival_workers.engine.effects import OpenRow
from rival_workers.engine.policies import Policies
from rival_workers.runtime.attempt.context import Ended
from rival_workers.runtime.attempt.position import Position
from rival_workers.runtime.flow.stop_signals import Continued
from rival_workers.store.claim_records import BeginResult, Claim, Claimed, RunFacts
from rival_workers.store.flow_records import ContinuedFlow
from rival_workers.store.group_commits import FinishStep


@record(frozen=True)
class Verdict:
    """The outcome of the attempt that a message named. "stale" with an error: it ran, and its result came too late."""

    what: Literal["completed", "skipped", "failed", "retried", "suspended", "stale"]
    error: dict[str, Any] | None = None


@record(frozen=True)
class WaitingEnds:
    """Ends of inline steps that are committed together with that of the attempt after them. Of all these steps only the
    first has a row, which is `running`."""

    first: Attempt
    ends: tuple[FinishStep, ...]
    #: When the first of them ended, and when the attempt after them began, by the monotonic clock.
    since: float
    began: float


@record(frozen=True)
class Attempt:
    """One execution of a step's function."""

    claimed: Claimed
    definition: WorkflowDefinition
    position: Position
    #: Outcomes of earlier attempts of the same message, so that they need not be read back.
    ended: dict[str, Ended] = field(default_factory=dict)
    #: When the deadline of the run passes, by the monotonic clock of this process.
    expires: float | None = None
    #: Of the continue_as that the attempt follows directly.
    continued: Continued | None = None
    #: A function that makes the key of one of its limits has failed: its own function is not called.
    failed: Failure | None = None
    #: Ends that are committed together with its own.
    before: WaitingEnds | None = None

    @property
    def claim(self) -> Claim:
        return self.position.claim

    @property
    def held(self) -> Attempt:
        """The attempt whose row is `running` in the table for this one."""
        return self if self.before is None else self.before.first

    @property
    def ends(self) -> tuple[FinishStep, ...]:
        return () if self.before is None else self.before.ends

    def claimed_as(self, claim: Claim) -> Attempt:
        """The same, with a row of its own."""
        claimed = replace(self.claimed, token=claim.token, timeout_token=claim.token)
        return replace(self, claimed=claimed, position=replace(self.position, claim=claim), before=None)

    @lazy
    def hooks(self) -> Mapping[str, Any]:
        return self.definition.hooks_at(self.claimed.path)

    @property
    def where(self) -> tuple[str, str]:
        return self.claimed.run_id, self.claimed.path


def attempt_of(
    claimed: Claimed,
    definition: WorkflowDefinition,
    book: Rulebook,
    ended: dict[str, Ended] | None = None,
    expires: float | None = None,
) -> Attempt:
    """Its options are those that the workflow, the run and the fleet (`book`) give at this moment."""
    policies = definition.policies.over(claimed.facts.policies, book, claimed.facts.labels)
    return _attempt_under(policies, claimed, definition, {} if ended is None else ended, expires)


def _attempt_under(
    policies: Policies,
    claimed: Claimed,
    definition: WorkflowDefinition,
    ended: dict[str, Ended],
    expires: float | None = None,
) -> Attempt:
    claim, facts = Claim(claimed.run_id, claimed.path, claimed.token), claimed.facts
    row = (claimed.attempt, claimed.lost, claimed.kind, claimed.route, facts.level, facts.labels)
    position = Position(claim, definition.name, definition.version, policies, *row)
    return Attempt(claimed, definition, position, ended, expires)


def first_attempt(
    run_id: str, started: BeginResult, opening: OpenRow, definition: WorkflowDefinition, book: Rulebook
) -> Attempt:
    """The attempt of a run's first step, claimed by the statement that started the run."""
    policies = definition.policies.over(started.facts.policies, book, started.facts.labels)
    config = policies.at(opening.path)
    claimed = _first_claim(run_id, opening, config, started.input, started.finished.token, started.facts)
    return _attempt_under(policies, claimed, definition, {})


def next_attempt(attempt: Attempt, end: End | FallBack, opening: OpenRow, token: int, book: Rulebook) -> Attempt:
    """The attempt of the next step, claimed by the commit that finished this one."""
    claimed = attempt.claimed
    if isinstance(end, End):
        attempt.ended[claimed.path] = Ended(end.status, end.result, end.state)
    known = attempt.position.policies
    policies = attempt.position.policies_under(book)
    first = _first_claim(claimed.run_id, opening, policies.at(opening.path), claimed.input, token, claimed.facts)
    if policies is known:
        return _attempt_under(known, first, attempt.definition, attempt.ended, attempt.expires)
    return attempt_of(first, attempt.definition, book, attempt.ended, attempt.expires)


def continued_attempt(
    attempt: Attempt, continued: Continued, done: ContinuedFlow, left: float | None, book: Rulebook
) -> Attempt:
    """The attempt of a flow that starts over, claimed by the commit of continue_as. `left`: until the deadline of the
    step."""
    assert done.timeout_token is not None, "it was claimed"
    under = replace(attempt.claimed, token=done.token, timeout_token=done.timeout_token)
    claimed = replace(under, attempt=1, lost=0, item=None, left=left, waited=None, stored=None)
    after = attempt_of(claimed, attempt.definition, book, attempt.ended, attempt.expires)
    return replace(after, continued=continued)


def _first_claim(
    run_id: str, opening: OpenRow, config: StepConfig, run_input: Any, token: int, facts: RunFacts
) -> Claimed:
    """The claim of a step's first attempt, after an insert whose tokens begin at `token`."""
    tokens = (token + 1, token + 1)
    route, left = opening.route or config.route(facts.level), config.step_deadline
    return Claimed(run_id, opening.path, *tokens, 1, 0, run_input, opening.kind, facts=facts, route=route, left=left)
