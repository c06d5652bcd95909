"""Transitions of runs and steps, in portable SQL: one guarded transition per operation, one transaction each.

Lock order within a transaction: see `rival_client.db.locks`.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, Row, Update, and_, delete, or_, select, update

from rival_client.db.database import Database
from rival_client.db.guards import run_can
from rival_client.db.locks import share_run
from rival_client.db.tables import after, now, runs, steps, waits
from rival_client.model.kinds import FLOW, WAIT
from rival_client.model.payload import NULL
from rival_client.model.records import Step
from rival_client.model.timers import EARLY, look_at
from rival_client.sql import run_reads
from rival_client.sql.history import HistoryWriter, record
from rival_client.sql.wake import wake_run
from rival_workers.engine.decisions import End, Retry
from rival_workers.engine.effects import Advance
from rival_workers.engine.paths import is_reaction
from rival_workers.store.interface import (
    BeginResult,
    Claim,
    Claimed,
    FinishResult,
    NotYet,
    ReleaseReason,
    RunningAttempt,
    WorkflowVersion,
)
from rival_workers.store.sql.apply_effects import EffectsSql
from rival_workers.store.sql.composite_results import Outcome
from rival_workers.store.sql.guards import (
    ATTEMPT_COLUMNS,
    RUNNING,
    after_or_never,
    guard,
    is_of,
    next_look,
    other_than,
    record_attempt,
    run_goes_on,
    run_leaves_pending,
    running_of,
    step_leaves_running,
)
from rival_workers.store.sql.locks import in_lock_order

#: Actors of history entries that no attempt and no operator has caused.
KEEPER, TIMER, REVOKE = "keeper", "timer", "revoke"

#: What an attempt needs to know of its step's row.
_CLAIM_COLUMNS = (steps.c.execution_token, steps.c.timeout_token, steps.c.attempts, steps.c.lost, steps.c.kind)


class StepTransitionsSql:
    database: Database
    ring_grace: float
    near: float
    max_payload: int

    def begin_run(
        self, run_id: str, token: int, advance: Advance, *, claim_for: str | None, of: WorkflowVersion | None = None
    ) -> BeginResult | WorkflowVersion | None:
        """The run starts and its first step opens; without `claim_for`, it is left to be claimed by a message. A
        WorkflowVersion, here and in `claim_step`: nothing was done, since the run is of this one and not `of` that."""

        def once(connection: Connection, alone: bool) -> BeginResult | WorkflowVersion | None:
            columns = (runs.c.workflow, runs.c.version, runs.c.input)
            run = connection.execute(run_leaves_pending(run_id, token, of).returning(*columns)).first()
            if run is None:
                return other_than(connection, run_id, of)
            following = self._following(connection, run_id, claim_for, alone, by=claim_for)
            following.writer.add("started", workflow=run.workflow, version=run.version, input=run.input)
            following.apply(advance.effects)
            return BeginResult(run.input, following.conclude())

        return in_lock_order(self.database, run_id, once)

    def claim_step(
        self,
        claim: Claim,
        timeout: float | None,
        executor: str,
        *,
        of: WorkflowVersion | None = None,
        within: float | None = None,
    ) -> Claimed | NotYet | WorkflowVersion | None:
        """`within`: so many seconds before it is due."""
        # What waits without a time is woken by what it waits for, never by a message.
        startable = and_(steps.c.due_at.is_(None), steps.c.status != "waiting")
        due = or_(startable, steps.c.due_at <= after(EARLY if within is None else within))
        statement = _step_starts(claim, executor, timeout).where(due, run_goes_on(claim.run_id, of))
        with self.database.transaction() as connection:
            share_run(connection, claim.run_id)
            step = connection.execute(statement.returning(*_CLAIM_COLUMNS)).first()
            if step is None:
                return self._too_early(connection, claim, of) or other_than(connection, claim.run_id, of)
            # A timer's row is claimed as it waits; with it the whole run may have.
            wake_run(connection, claim.run_id)
            if step.kind == WAIT:
                # Its time is up: no event is for it any more.
                connection.execute(delete(waits).where(waits.c.run_id == claim.run_id, waits.c.path == claim.path))
            record(connection, claim.run_id, claim.path, "claimed", by=executor, attempt=step.attempts)
            run_input = connection.scalar(select(runs.c.input).where(runs.c.id == claim.run_id))
            token, timeout_token, attempt, lost, kind = step
            return Claimed(claim.run_id, claim.path, token, timeout_token, attempt, lost, run_input, kind)

    def _too_early(self, connection: Connection, claim: Claim, of: WorkflowVersion | None) -> NotYet | None:
        row = connection.execute(
            select(steps.c.due_at, now().label("now"))
            .join(runs, runs.c.id == steps.c.run_id)
            .where(guard(claim, "claim_step"), steps.c.due_at > now(), is_of(of))
        ).first()
        return None if row is None else NotYet((row.due_at - row.now).total_seconds())

    def finish_step(self, claim: Claim, end: End, advance: Advance, *, claim_for: str | None) -> FinishResult | None:
        """End the step and apply what follows. None: stale."""

        def once(connection: Connection, alone: bool) -> FinishResult | None:
            return self._finish(connection, claim, end, advance, claim_for, alone)

        return in_lock_order(self.database, claim.run_id, once)

    def _finish(
        self, connection: Connection, claim: Claim, end: End, advance: Advance, claim_for: str | None, alone: bool
    ) -> FinishResult | None:
        verb = "finish_step" if claim.guard == "execution_token" else "time_out_finish"
        step = connection.execute(
            step_leaves_running(claim, verb, end.status)
            .values(result=end.result, state=end.state, error=end.error, completed_at=now(), ring_at=None)
            .returning(*ATTEMPT_COLUMNS, steps.c.kind)
        ).first()
        if step is None:
            return None
        if end.status == "failed" or step.attempts > 1:
            record_attempt(connection, claim, step, end.outcome, end.error)
        following = self._following(connection, claim.run_id, claim_for, alone, by=_who(claim, step, end.outcome))
        what = end.outcome if end.status == "failed" else end.status
        following.writer.add(what, claim.path, result=end.result, state=end.state, error=end.error)
        if step.kind == FLOW:
            following.end_checkpoints(claim.path)
        following.outcome = _outcome(claim.path, end)
        following.apply(advance.effects)
        return following.conclude()

    def _following(
        self, connection: Connection, run_id: str, claim_for: str | None, alone: bool = False, *, by: str | None
    ) -> EffectsSql:
        limits = (self.ring_grace, self.near, self.max_payload)
        return EffectsSql(connection, run_id, claim_for, *limits, HistoryWriter(connection, run_id, by), alone)

    def retry_step(self, claim: Claim, retry: Retry, *, rung: bool) -> int | None:
        """`rung`: the caller publishes a message with a countdown. Otherwise the keeper does, just before it is due."""
        verb = "retry_step" if claim.guard == "execution_token" else "time_out_retry"
        with self.database.transaction() as connection:
            step = connection.execute(
                step_leaves_running(claim, verb, "waiting_retry")
                .values(
                    state=retry.state,
                    error=retry.error,
                    due_at=after(retry.delay),
                    **next_look(look_at(retry.delay, rung, self.ring_grace)),
                )
                .returning(*ATTEMPT_COLUMNS)
            ).first()
            if step is None:
                return None
            record_attempt(connection, claim, step, retry.outcome, retry.error)
            told = HistoryWriter(connection, claim.run_id, _who(claim, step, retry.outcome))
            if retry.outcome != "failed":
                told.add(retry.outcome, claim.path, error=retry.error)
            told.add(
                "retried", claim.path, attempt=step.attempts, delay=retry.delay, error=retry.error, state=retry.state
            )
            told.write()
            return int(step.execution_token)

    def release_step(self, claim: Claim, reason: ReleaseReason) -> int | None:
        """The attempt ends without using up an attempt: the step is pending again."""
        lost = 1 if reason == "lost" else 0
        with self.database.transaction() as connection:
            step = connection.execute(
                step_leaves_running(claim, "release_step", "pending")
                .values(
                    attempts=steps.c.attempts - 1,
                    lost=steps.c.lost + lost,
                    due_at=now(),
                    ring_at=after(self.ring_grace),
                    rings=0,
                )
                .returning(*ATTEMPT_COLUMNS)
            ).first()
            if step is None:
                return None
            record_attempt(connection, claim, step, reason, None, attempt=step.attempts + 1)
            what, by = ("taken_over", KEEPER) if lost else (reason, step.executor_id)
            record(connection, claim.run_id, claim.path, what, by=by, executor=step.executor_id)
            return int(step.execution_token)

    def park(
        self, run_id: str, path: str | None, token: int, reason: str, delay: float, *, of: WorkflowVersion | None = None
    ) -> bool | WorkflowVersion:
        """No worker here can run it: store the reason, and make it due again later. The token stays, so another worker
        can claim it. False: stale. A WorkflowVersion: as in `begin_run`."""
        if path is None:
            statement = (
                update(runs)
                .where(runs.c.id == run_id, runs.c.token == token, run_can("park_run"), is_of(of))
                .values(parked=reason, ring_at=after(delay))
            )
        else:
            statement = (
                update(steps)
                .where(guard(Claim(run_id, path, token), "park_step"), run_goes_on(run_id, of))
                .values(parked=reason, ring_at=after(delay))
            )
        with self.database.transaction() as connection:
            return connection.execute(statement).rowcount == 1 or other_than(connection, run_id, of) or False

    # -- reading, for attempts ----------------------------------------------------------------------------

    def read_step(self, run_id: str, path: str) -> Step | None:
        with self.database.autocommit() as connection:
            return run_reads.read_step(connection, run_id, path)

    def read_item(self, run_id: str, path: str) -> Any:
        """The item of a row."""
        with self.database.autocommit() as connection:
            return connection.scalar(select(steps.c.item).where(steps.c.run_id == run_id, steps.c.path == path))

    def failure_of(self, run_id: str) -> tuple[str | None, dict[str, Any] | None]:
        """The step that has failed the run, and its error."""
        with self.database.autocommit() as connection:
            row = connection.execute(select(runs.c.failed_step, runs.c.error).where(runs.c.id == run_id)).one()
        return row.failed_step, row.error

    def token_of(self, run_id: str, path: str) -> tuple[str, int, str | None] | None:
        """(status, execution token, executor): what there is to know after a commit whose answer was lost."""
        with self.database.autocommit() as connection:
            row = connection.execute(
                select(steps.c.status, steps.c.execution_token, steps.c.executor_id).where(
                    steps.c.run_id == run_id, steps.c.path == path
                )
            ).first()
        return None if row is None else (row.status, row.execution_token, row.executor_id)

    def running_on(self, executor: str) -> list[RunningAttempt]:
        with self.database.without_seqscan() as connection:
            found = connection.execute(RUNNING.where(steps.c.executor_id == executor))
            return [running_of(row) for row in found]


def _who(claim: Claim, step: Row[Any], outcome: str) -> str | None:
    """The actor: the executor of the attempt, or what ended the attempt."""
    if claim.guard == "timeout_token":
        return TIMER
    actors: dict[str, str | None] = {"lost": KEEPER, "revoked": REVOKE}
    return actors.get(outcome, step.executor_id)


def _outcome(path: str, end: End) -> Outcome:
    """The result of a handler or a compensation is not passed on."""
    result = NULL if end.result is None or is_reaction(path) else end.result
    return Outcome(result, end.error, path, end.items)


def _step_starts(claim: Claim, executor: str, timeout: float | None) -> Update:
    """A new attempt of a step, under the guard of a claim."""
    return (
        update(steps)
        .where(guard(claim, "claim_step"))
        .values(
            status="running",
            attempts=steps.c.attempts + 1,
            executor_id=executor,
            started_at=now(),
            execution_token=steps.c.execution_token + 1,
            timeout_token=steps.c.timeout_token + 1,
            timeout_at=after_or_never(timeout),
            ring_at=after_or_never(timeout),
            rings=0,
            parked=None,
        )
    )
