"""Ends of inline steps that wait for the next one: the next inline step runs before the end of this one is committed,
and both ends are one commit. If the process dies before it, all of these steps run again.

It does not decide what follows from an outcome, and commits alone only what must not wait: the ends before a failure,
whose error and whose retries need a row.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

from rival_client.model import history_entries as entries
from rival_client.model.kinds import STEP
from rival_workers.engine.decisions import Decision, End
from rival_workers.engine.paths import place_of
from rival_workers.runtime.attempt.attempts import Attempt, WaitingEnds, next_attempt
from rival_workers.runtime.attempt.claiming import Claiming
from rival_workers.runtime.attempt.position import InPlace
from rival_workers.runtime.attempt.runs_in_hand import Commits, committed
from rival_workers.signals import attempt_ended, attempt_started
from rival_workers.store.claim_records import FinishResult
from rival_workers.store.group_commits import FinishSteps, claim_of_next

T = TypeVar("T")

#: The most ends in one commit.
MOST = 10
#: The last of these steps starts within so many seconds after the first end. A step that takes longer is excluded.
WITHIN = 0.05
#: With more messages in hand than this, ends do not wait: a group commit of so many runs costs less.
FEW = 4


class InlineEnds(Claiming):
    #: Excluded steps (workflow, version, place): no end waits for them, and theirs does not wait. They take long, or
    #: the database has refused their values.
    _alone: set[tuple[str, str, str]]

    def _next_inline(self, attempt: Attempt, end: Decision, in_place: InPlace | None) -> Attempt | None:
        """The attempt of the inline step that follows, if the end of this one can wait for it. None: it is committed
        now."""
        if in_place is None or not attempt.position.config.is_inline:
            return None
        now, before = self.limits.clock(), attempt.before
        if before is not None and now > before.began + WITHIN:
            self._alone.add(_place(attempt))
        if not isinstance(end, End) or end.outcome != entries.COMPLETED or not self._can_wait(attempt):
            return None
        ends, since = ((), now) if before is None else (before.ends, before.since)
        if len(ends) + 2 > MOST or now > since + WITHIN:
            return None
        finish = self.transitions.finish_of(attempt.position, end, in_place)
        opening = finish.advance.next_leaf
        if opening is None or opening.kind != STEP or not finish.advance.claims_next:
            return None
        if self.executor.running.messages > FEW and self.store.can_group(finish):
            return None
        book = self.transitions.options.book()
        # The rows of a run begin with one token, unless it was rewound meanwhile: the commit finds out.
        after = next_attempt(attempt, end, opening, attempt.claim.token - 1, book)
        waiting = WaitingEnds(attempt.held, (*ends, finish), since, now)
        return replace(after, before=waiting) if self._can_wait(after) else None

    def _can_wait(self, attempt: Attempt) -> bool:
        """True for an inline step that needs no row of its own while it runs: nothing can end or limit it but the end
        of its run."""
        config, claimed = attempt.position.config, attempt.claimed
        if not config.is_inline or claimed.kind != STEP or None not in self.settings.served:
            return False
        is_first = claimed.attempt == 1 and not claimed.lost and claimed.waited is None
        needs_row = config.limit is not None or claimed.left is not None or config.circuit_breaker or config.limits
        is_observed = attempt.hooks or attempt_started.receivers or attempt_ended.receivers
        return is_first and not needs_row and not is_observed and _place(attempt) not in self._alone

    def _claimed_after(self, attempt: Attempt, before: WaitingEnds) -> Commits[Attempt | None]:
        """Commit the ends before an attempt that has failed, and claim its row. None: these steps have moved on, and
        the failure counts for nothing."""
        found: list[Attempt] = []

        def commit(again: bool) -> Commits[bool]:
            ends = FinishSteps(before.ends, next_has_run=True)
            done: list[FinishResult] = yield from self._resumed(committed(ends))
            claim = claim_of_next(done[-1], attempt.claim) if len(done) == len(before.ends) else None
            if claim is not None and not again:
                found.append(self._added(attempt.claimed_as(claim)))
            elif done and claim is None:
                self.transitions.publish(attempt.position, done[-1])
            return bool(done)

        yield from self._outage.land(before.first.claim, (before.ends[0].end.status,), commit)
        return found[0] if found else None

    def _refused_together(self, attempt: Attempt) -> None:
        """The database has refused the value of one of these steps: they run again, and each end is committed alone."""
        workflow = _place(attempt)[:2]
        self._alone.update((*workflow, place_of(one.claim.path)) for one in attempt.ends)

    def _resumed(self, commits: Commits[T]) -> Commits[T]:
        """The same; another thread may continue after each commit."""
        running = self.executor.running
        message = running.leave()
        try:
            return (yield from commits)
        finally:
            running.enter(message)


def _place(attempt: Attempt) -> tuple[str, str, str]:
    return attempt.definition.name, attempt.definition.version, place_of(attempt.claimed.path)
