"""Commits that a store can execute with those of other runs in one transaction. Each row has its own guard."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, Final, Literal

from rival_client.model.lazy import lazy
from rival_client.model.limits.limits import Limit
from rival_client.model.record import record
from rival_workers.engine.decisions import End, FallBack
from rival_workers.engine.effects import Advance
from rival_workers.store.claim_records import (
    BeginOutcome,
    Claim,
    ClaimBy,
    Delivered,
    FinishResult,
    Successor,
    Without,
    WorkflowVersion,
)

if TYPE_CHECKING:
    from rival_workers.store.interface import Store


@record(frozen=True)
class BeginRun:
    run_id: str
    token: int
    advance: Advance
    claim_for: str | None
    of: WorkflowVersion | None = None
    limits: Sequence[Limit] = ()
    without: Without | None = None

    @lazy
    def is_limited(self) -> bool:
        """True if the step that opens has limits."""
        leaf = self.advance.next_leaf
        return leaf is not None and bool(self.advance.limits_of(leaf))

    def apply(self, store: Store) -> BeginOutcome:
        how: dict[str, Any] = {"claim_for": self.claim_for, "of": self.of, "limits": self.limits}
        return store.begin_run(self.run_id, self.token, self.advance, **how, without=self.without)


@record(frozen=True)
class FinishStep:
    claim: Claim
    end: End | FallBack
    advance: Advance
    claim_for: str | None
    successor: Successor | None = None

    @lazy
    def is_limited(self) -> bool:
        """True if the step that ends, or the step that opens, has limits."""
        advance, leaf = self.advance, self.advance.next_leaf
        return bool(advance.config_of(self.claim.path).limits or (leaf is not None and advance.limits_of(leaf)))

    def apply(self, store: Store) -> FinishResult | None:
        how: dict[str, Any] = {"claim_for": self.claim_for, "successor": self.successor}
        return store.finish_step(self.claim, self.end, self.advance, **how)


@record(frozen=True)
class FinishSteps:
    """The ends of inline steps that have run one after the other, in one transaction. Only the first has a row."""

    steps: tuple[FinishStep, ...]
    #: The step that follows them has run as well, and has failed.
    next_has_run: bool = False
    is_limited = False

    @property
    def claim(self) -> Claim:
        return self.steps[0].claim

    @property
    def claim_for(self) -> str | None:
        return self.steps[-1].claim_for

    def apply(self, store: Store) -> list[FinishResult]:
        return store.finish_steps(self.steps, next_has_run=self.next_has_run)


@record(frozen=True)
class DeliverEvent:
    event_id: str
    claim: ClaimBy | None
    is_limited = False

    @property
    def claim_for(self) -> str | None:
        return None if self.claim is None else self.claim.executor

    def apply(self, store: Store) -> Delivered:
        return store.deliver_event(self.event_id, self.claim)


def claim_of_next(finished: FinishResult, claim: Claim) -> Claim | None:
    """The claim, with the token that its row has. None: the commit has not claimed that step."""
    opening = finished.claimed
    if opening is None or opening.path != claim.path:
        return None
    return replace(claim, token=finished.token_of(opening) + 1)


#: The commits that open a step or end a run.
StepCommit = BeginRun | FinishStep
Commit = StepCommit | FinishSteps | DeliverEvent


class _Answer(Enum):
    ALONE = auto()


Alone = Literal[_Answer.ALONE]


#: The answer to a commit that was not executed with the others, because its row does not match or the group could not
#: be committed. The caller executes it alone, and then its answer says why.
ALONE: Final = _Answer.ALONE


class GroupCommits:
    """A store that executes each commit alone."""

    def can_group(self, commit: Commit) -> bool:
        """True if `commit_group` accepts the commit."""
        return False

    def may_wait(self, commit: Commit) -> bool:
        """True if the commit, executed alone, may wait for another transaction, which a group never does."""
        return False

    def commit_group(self, commits: Sequence[Commit]) -> list[Any]:
        """Returns the answer to each commit, or ALONE. After a DatabaseError it is unknown whether the group was
        committed."""
        return [ALONE] * len(commits)
