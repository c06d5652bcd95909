"""Transitions of runs and steps, in portable SQL: one guarded transition per operation, one transaction each.

Lock order within a transaction: see `rival_client.db.locks`.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, Row, select, update

from rival_client.db.locks import share_run
from rival_client.db.run_tables import runs, steps
from rival_client.db.types import after, now
from rival_client.model import history_entries as entries
from rival_client.model import statuses
from rival_client.model.kinds import FLOW
from rival_client.model.limits.limits import Limit
from rival_client.model.limits.singletons import rules_of, singleton_of
from rival_client.model.payload import NULL
from rival_client.model.starts.priorities import given_priority
from rival_client.model.timers import look_at
from rival_client.sql.breaker_waits import add_wait
from rival_client.sql.grants import Grant
from rival_client.sql.history import HistoryWriter, record
from rival_client.sql.tickets import withdraw
from rival_client.sql.wake import wake_run
from rival_workers.engine.decisions import End, FallBack, Retry
from rival_workers.engine.effects import Advance
from rival_workers.engine.paths import is_fallback, is_reaction
from rival_workers.store.claim_records import (
    BeginOutcome,
    BeginResult,
    BudgetSpent,
    Claim,
    FinishResult,
    HasRules,
    NotYet,
    Queued,
    Successor,
    Without,
    WorkflowVersion,
)
from rival_workers.store.group_commits import FinishStep, claim_of_next
from rival_workers.store.sql.admission import with_gates
from rival_workers.store.sql.apply_effects import EffectsSql
from rival_workers.store.sql.composite_results import Outcome
from rival_workers.store.sql.guards import (
    ATTEMPT_COLUMNS,
    FACTS,
    earliest,
    facts_of,
    leave_running,
    may_begin_now,
    next_look,
    other_than,
    record_attempt,
    run_leaves_pending,
    wrong_moment,
)
from rival_workers.store.sql.limited_starts import LimitedStartsSql
from rival_workers.store.sql.locks import in_lock_order
from rival_workers.store.sql.singletons import take_place
from rival_workers.store.sql.step_ends import end_values, write_end

#: Actors of history entries that neither an attempt nor an operator caused.
KEEPER, TIMER, REVOKE = "keeper", "timer", "revoke"
#: Columns of a run that begins.
_BEGUN = (runs.c.id, runs.c.workflow, runs.c.version, runs.c.input, runs.c.singleton, *FACTS)


class StepTransitionsSql(LimitedStartsSql):
    def begin_run(
        self,
        run_id: str,
        token: int,
        advance: Advance,
        *,
        claim_for: str | None,
        of: WorkflowVersion | None = None,
        limits: Sequence[Limit] = (),
        without: Without | None = None,
    ) -> BeginOutcome:
        """Start the run and open its first step; without `claim_for`, a message claims the step. Returns a
        WorkflowVersion, here and in `claim_step`, if nothing was done because the run has another version than `of`.
        `limits`: of whole runs; Queued: one of them is full, and the run waits. `without`: see `HasRules`."""
        grants: list[Grant] = []

        def once(all_shards: bool) -> BeginOutcome:
            grants.clear()
            return in_lock_order(self.database, run_id, lambda connection, alone: begin(connection, alone, all_shards))

        def begin(connection: Connection, alone: bool, all_shards: bool) -> BeginOutcome:
            if without is not None and (rules := _rules(connection, run_id, without)):
                return rules
            admitted = self._admit_run(connection, run_id, token, of, limits, all_shards, grants)
            if isinstance(admitted, Queued | NotYet):
                return admitted
            slots = admitted.slots or None if admitted else None
            begins = run_leaves_pending(run_id, token, of).where(may_begin_now()).values(slots=slots)
            run = None if admitted is None else connection.execute(begins.returning(*_BEGUN)).first()
            if run is None:
                return wrong_moment(connection, run_id, token, of) or other_than(connection, run_id, of)
            take_place(connection, run)
            following = self._following(connection, run_id, claim_for, advance, alone, by=claim_for)
            following.writer.add(entries.STARTED, **started_detail(run))
            following.apply(advance.effects)
            return BeginResult(run.input, following.conclude(), facts_of(run))

        begun = with_gates(self.database, once)
        self._publish_grants(grants)
        return begun

    def finish_step(
        self,
        claim: Claim,
        end: End | FallBack,
        advance: Advance,
        *,
        claim_for: str | None,
        successor: Successor | None = None,
    ) -> FinishResult | None:
        """End the step, or let it wait for its fallback, and apply what follows. None: stale. A waiting successor at a
        limit is only granted the slot: its claim is another transaction, which locks its rows first."""

        def once(connection: Connection, alone: bool) -> FinishResult | None:
            return self._finish(connection, claim, end, advance, claim_for, alone)

        return in_lock_order(self.database, claim.run_id, once)

    def finish_steps(self, steps: Sequence[FinishStep], *, next_has_run: bool = False) -> list[FinishResult]:
        """End steps that have run one after the other, in one transaction: each end claims the next step, but only the
        first step has a row. Returns the results of those that have ended: none if the first is stale. They end in a
        paused run, too, as any step that runs; what follows them waits. `next_has_run`: that step has run as well."""

        def once(connection: Connection, alone: bool) -> list[FinishResult]:
            done: list[FinishResult] = []
            for step in steps:
                claim = step.claim if not done else claim_of_next(done[-1], step.claim)
                how = (step.end, step.advance, step.claim_for, alone)
                has_run = next_has_run or step is not steps[-1]
                finished = None if claim is None else self._finish(connection, claim, *how, next_has_run=has_run)
                if finished is None:
                    break
                done.append(finished)
            return done

        return in_lock_order(self.database, steps[0].claim.run_id, once)

    def _finish(
        self,
        connection: Connection,
        claim: Claim,
        end: End | FallBack,
        advance: Advance,
        claim_for: str | None,
        alone: bool,
        next_has_run: bool = False,
    ) -> FinishResult | None:
        verb, values = end_values(claim, end)
        step, slots = leave_running(connection, claim, verb, end.status, values, *ATTEMPT_COLUMNS, steps.c.kind)
        if step is None:
            return None
        failed = end.outcome != entries.COMPLETED
        if end.outcome == entries.EXPIRED:
            # The step may have waited at the gate of a limit, and the whole run with it.
            slots += withdraw(connection, claim.run_id, [claim.path])
            wake_run(connection, claim.run_id)
        elif failed or step.attempts > 1:
            error = end.error if isinstance(end, FallBack) else end.attempt_error or end.error
            record_attempt(connection, claim, step, end.outcome, error)
        following = self._following(
            connection, claim.run_id, claim_for, advance, alone, by=_who(claim, step, end.outcome)
        )
        following.slots += slots
        following.next_has_run = next_has_run
        if isinstance(end, End) and end.keyed and end.reused_from is None:
            following.ended_keys[claim.path] = end.shared
        write_end(following.writer, claim.path, end)
        if step.kind == FLOW:
            following.end_checkpoints(claim.path)
        if isinstance(end, End):
            following.outcome = _outcome(claim.path, end)
        following.apply(advance.effects)
        return following.conclude()

    def _following(
        self,
        connection: Connection,
        run_id: str,
        claim_for: str | None,
        advance: Advance,
        alone: bool = False,
        *,
        by: str | None,
    ) -> EffectsSql:
        writer = HistoryWriter(connection, run_id, by)
        limits = (self.ring_grace, self.near, writer, advance.config_of, advance.policy_of)
        following = EffectsSql(connection, run_id, claim_for, *limits, max_payload=self.max_payload, alone=alone)
        following.served, following.only_inline = self.served, advance.only_inline
        return following

    def retry_step(self, claim: Claim, retry: Retry, *, published: bool) -> int | BudgetSpent | None:
        """`published`: the caller publishes a message with a countdown. Otherwise the keeper does, just before it."""
        verb = "retry_step" if claim.guard == "execution_token" else "time_out_retry"
        look = next_look(look_at(retry.left, published, self.ring_grace), steps.c.deadline_at)
        waits = {"state": retry.state, "error": retry.error, "due_at": after(retry.left), **look}
        waits |= {} if retry.fallback is None else {"fallback": retry.fallback}
        with self.database.transaction() as connection:
            if retry.budget is not None:
                # The row of the run is locked after that of the step.
                share_run(connection, claim.run_id)
            step, slots = leave_running(connection, claim, verb, statuses.WAITING_RETRY, waits, *ATTEMPT_COLUMNS)
            if step is None:
                return None
            left = None if retry.budget is None else _use_budget(connection, claim.run_id, retry.budget)
            if left is not None and left < 0:
                connection.rollback()
                return BudgetSpent(retry.budget or 0)
            record_attempt(connection, claim, step, retry.outcome, retry.error)
            writer = HistoryWriter(connection, claim.run_id, _who(claim, step, retry.outcome))
            if retry.outcome != entries.FAILED:
                writer.add(retry.outcome, claim.path, error=retry.error)
            if retry.fallback is not None:
                writer.add(entries.FELL_BACK, claim.path, fallback=retry.fallback, error=retry.error, state=retry.state)
            writer.add(
                entries.RETRIED,
                claim.path,
                attempt=step.attempts,
                delay=retry.delay,
                error=retry.error,
                state=retry.state,
                budget_left=left,
            )
            writer.write()
            grants = self._leave(connection, slots)
        self._publish_grants(grants)
        return int(step.execution_token)

    def postpone_step(self, claim: Claim, seconds: float, breaker: str, *, published: bool) -> int | None:
        """Postpone a step whose circuit breaker is open: its function was not called, and it is claimed again in
        `seconds`. `published`: as in `retry_step`."""
        look = next_look(look_at(seconds, published, self.ring_grace), steps.c.deadline_at)
        waits = {"attempts": steps.c.attempts - 1, "due_at": after(seconds), **look}
        with self.database.transaction() as connection:
            step, slots = leave_running(
                connection, claim, "postpone_step", statuses.WAITING_RETRY, waits, *ATTEMPT_COLUMNS
            )
            if step is None:
                return None
            by = step.executor_id
            record(connection, claim.run_id, claim.path, entries.POSTPONED, by=by, breaker=breaker, seconds=seconds)
            add_wait(connection, claim.run_id, claim.path, step.execution_token, breaker)
            grants = self._leave(connection, slots)
        self._publish_grants(grants)
        return int(step.execution_token)

    def take_over_step(self, claim: Claim) -> int | None:
        """The executor of the attempt is lost: the step is pending again, and the loss is counted."""
        return self._start_again(claim, "take_over_step", entries.TAKEN_OVER, lost=1)

    def hand_back_step(self, claim: Claim) -> int | None:
        """The executor cannot finish the attempt: the step is pending again."""
        return self._start_again(claim, "hand_back_step", entries.HANDED_BACK, lost=0)

    def _start_again(self, claim: Claim, verb: str, outcome: str, *, lost: int) -> int | None:
        """Make the step pending again without using up an attempt."""
        counts = {"attempts": steps.c.attempts - 1, "lost": steps.c.lost + lost}
        again = {
            **counts,
            "due_at": now(),
            "ring_at": earliest(after(self.ring_grace), steps.c.deadline_at),
            "rings": 0,
        }
        with self.database.transaction() as connection:
            step, slots = leave_running(connection, claim, verb, statuses.PENDING, again, *ATTEMPT_COLUMNS)
            if step is None:
                return None
            record_attempt(connection, claim, step, outcome, None, attempt=step.attempts + 1)
            by = KEEPER if lost else step.executor_id
            record(connection, claim.run_id, claim.path, outcome, by=by, executor=step.executor_id)
            grants = self._leave(connection, slots)
        self._publish_grants(grants)
        return int(step.execution_token)


def _use_budget(connection: Connection, run_id: str, budget: int) -> int:
    """Count a retry of the run. Returns how many are left; -1: the budget was used up. The caller has locked
    the step."""
    counted = update(runs).where(runs.c.id == run_id, runs.c.retries < budget).values(retries=runs.c.retries + 1)
    used = connection.scalar(counted.returning(runs.c.retries))
    return -1 if used is None else budget - used


def _rules(connection: Connection, run_id: str, without: Without) -> HasRules | None:
    row = connection.execute(select(runs.c.policies, runs.c.labels).where(runs.c.id == run_id)).first()
    if row is None or (row.policies is None and (row.labels is None or without == "policies")):
        return None
    return HasRules(row.policies, row.labels)


def started_detail(run: Any) -> dict[str, Any]:
    deadline = None if run.deadline_at is None else as_text(run.deadline_at)
    given = {"labels": run.labels, "policies": rules_of(run.policies), "deadline": deadline}
    given |= {"priority": given_priority(run.priority), "singleton": singleton_of(run.policies)}
    options = {name: value for name, value in given.items() if value is not None}
    return {"workflow": run.workflow, "version": run.version, "input": run.input, "options": options or None}


def as_text(at: dt.datetime) -> str:
    """Format a time exactly as the fast path does."""
    return at.astimezone(dt.UTC).isoformat(timespec="microseconds")


def _who(claim: Claim, step: Row[Any], outcome: str) -> str | None:
    """The actor: the executor of the attempt, or what ended the attempt."""
    if claim.guard == "timeout_token":
        return TIMER
    actors: dict[str, str | None] = {entries.LOST: KEEPER, entries.REVOKED: REVOKE}
    return actors.get(outcome, step.executor_id)


def _outcome(path: str, end: End) -> Outcome:
    """The result of a handler or a compensation is not passed on; the result of a fallback becomes that of its step."""
    is_own = is_reaction(path) and not is_fallback(path)
    result = NULL if end.result is None or is_own else end.result
    return Outcome(result, end.error, path, end.items)
