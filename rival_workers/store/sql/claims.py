"""Claims of steps, in portable SQL: starts attempts, parks steps that no worker can run, reads what attempts need."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, Row, Update, and_, delete, or_, select, update

from rival_client.db.event_tables import waits
from rival_client.db.guards import run_can
from rival_client.db.locks import share_run
from rival_client.db.run_tables import runs, steps
from rival_client.db.types import after, now
from rival_client.model import history_entries as entries
from rival_client.model import statuses
from rival_client.model.kinds import WAIT
from rival_client.model.limits.limits import Limit
from rival_client.model.payload import Json
from rival_client.model.starts.queues import Route
from rival_client.model.step_records import Step
from rival_client.model.timers import EARLY
from rival_client.sql.history import record
from rival_client.sql.reads import run_reads
from rival_client.sql.tickets import unqueue
from rival_client.sql.wake import wake_run
from rival_workers.store.claim_records import Claim, Claimed, NotYet, Queued, RunFacts, WorkflowVersion
from rival_workers.store.sql.guards import (
    FACTS,
    RUNNING,
    STEP_ROUTE,
    attempt_limit,
    earliest,
    facts_of,
    guard,
    in_time,
    is_of,
    is_served,
    other_than,
    route_of,
    run_goes_on,
    running_of,
    seconds_until,
    step_starts,
)
from rival_workers.store.sql.limited_starts import LimitedStartsSql, has_ticket
from rival_workers.store.sweep_records import RunningAttempt

#: The columns of a step's row that its attempt needs.
_CLAIM_COLUMNS = (
    steps.c.execution_token,
    steps.c.timeout_token,
    steps.c.attempts,
    steps.c.lost,
    steps.c.kind,
    steps.c.queue,
    steps.c.priority,
    steps.c.deadline_at,
    now().label("now"),
)


class ClaimsSql(LimitedStartsSql):
    def claim_step(
        self,
        claim: Claim,
        timeout: float | None,
        executor: str,
        *,
        of: WorkflowVersion | None = None,
        within: float | None = None,
        limits: Sequence[Limit] = (),
        policy: str | None = None,
    ) -> Claimed | NotYet | Queued | WorkflowVersion | None:
        """`within`: how many seconds before it is due the step may start. `limits`: if one of them is full, the step
        waits and Queued is returned. `policy`: the options that fleet rules changed."""
        if limits:
            return self._claim_limited(claim, timeout, executor, limits, of=of, within=within, policy=policy)
        # A step that waits without a time is woken by the event, child or system it waits for, never by a message.
        startable = and_(steps.c.due_at.is_(None), steps.c.status != statuses.WAITING)
        due = or_(startable, steps.c.due_at <= after(EARLY if within is None else within))
        statement = step_starts(claim, executor, timeout, policy).where(due, run_goes_on(claim.run_id, of))
        statement = statement.where(in_time(), is_served(self.served))
        with self.database.transaction() as connection:
            share_run(connection, claim.run_id)
            step = connection.execute(statement.returning(*_CLAIM_COLUMNS)).first()
            if step is not None:
                return self._claimed(connection, claim, step, executor)
            if not has_ticket(connection, claim):
                return self._too_early(connection, claim, of) or other_than(connection, claim.run_id, of)
        # The step waits at the gate of a limit that it no longer has.
        return self._claim_limited(claim, timeout, executor, (), of=of, within=within, policy=policy)

    def _claimed(self, connection: Connection, claim: Claim, step: Row[Any], executor: str) -> Claimed:
        # A timer's row is claimed while it waits; the whole run may be suspended with it.
        wake_run(connection, claim.run_id)
        if step.kind == WAIT:
            # The wait has timed out and takes no event any more.
            connection.execute(delete(waits).where(waits.c.run_id == claim.run_id, waits.c.path == claim.path))
        record(connection, claim.run_id, claim.path, entries.CLAIMED, by=executor, attempt=step.attempts)
        run = connection.execute(select(runs.c.input, *FACTS).where(runs.c.id == claim.run_id)).one()
        counts, facts = (step.attempts, step.lost), facts_of(run)
        tokens = (step.execution_token, step.timeout_token)
        values = (*tokens, *counts, run.input, step.kind)
        left = seconds_until(step.deadline_at, step.now)
        return Claimed(*claim.where, *values, facts=facts, route=route_of(step, facts.level), left=left)

    def _too_early(self, connection: Connection, claim: Claim, of: WorkflowVersion | None) -> NotYet | None:
        row = connection.execute(
            select(steps.c.due_at, now().label("now"), *STEP_ROUTE)
            .join(runs, runs.c.id == steps.c.run_id)
            .where(guard(claim, "claim_step"), steps.c.due_at > now(), is_of(of))
        ).first()
        return None if row is None else NotYet((row.due_at - row.now).total_seconds(), Route(row.queue, row.level))

    def apply_policy(self, claim: Claim, timeout: float | None, policy: str | None) -> bool:
        """Apply the rules of the run that the claim did not know: the attempt gets another time limit and other
        options."""
        changed = {"timeout_at": attempt_limit(timeout), "ring_at": attempt_limit(timeout)}
        recorded = {"policy": None if policy is None else Json(policy)}
        with self.database.transaction() as connection:
            done = connection.execute(update(steps).where(guard(claim, "apply_policy")).values(**changed, **recorded))
        return done.rowcount == 1

    def read_run_rules(self, run_id: str) -> tuple[dict[str, Any] | None, dict[str, str] | None]:
        """The policies and the labels of a run, for callers that do not run its steps."""
        with self.database.autocommit() as connection:
            row = connection.execute(select(runs.c.policies, runs.c.labels).where(runs.c.id == run_id)).first()
        return (None, None) if row is None else (row.policies, row.labels)

    def park_run(
        self, run_id: str, token: int, reason: str, delay: float, *, of: WorkflowVersion | None = None
    ) -> bool | WorkflowVersion:
        """Like `park_step`, for a run that has not begun."""
        its_run = (runs.c.id == run_id, runs.c.token == token, run_can("park_run"), is_of(of))
        return self._park(update(runs).where(*its_run), run_id, "", reason, after(delay), of)

    def park_step(
        self, claim: Claim, reason: str, delay: float, *, of: WorkflowVersion | None = None
    ) -> bool | WorkflowVersion:
        """No worker of this fleet can run the step: store the reason and make it due again later. The token stays, so
        another worker can claim the step. False: stale. A WorkflowVersion: as in `begin_run`."""
        its_step = (guard(claim, "park_step"), run_goes_on(claim.run_id, of))
        look = earliest(after(delay), steps.c.start_by, steps.c.deadline_at)
        return self._park(update(steps).where(*its_step), claim.run_id, claim.path, reason, look, of)

    def _park(
        self, row: Update, run_id: str, path: str, reason: str, look: Any, of: WorkflowVersion | None
    ) -> bool | WorkflowVersion:
        parked = row.values(parked=reason, ring_at=look, rings=0)
        with self.database.transaction() as connection:
            share_run(connection, run_id)
            if connection.execute(parked).rowcount != 1:
                return other_than(connection, run_id, of) or False
            # A parked step holds no slot.
            slots = unqueue(connection, run_id, None, "parked", path)
            connection.execute(parked)
            grants = self._leave(connection, slots)
        self._publish_grants(grants)
        return True

    # -- reading --------------------------------------------------------------------------------------------

    def read_step(self, run_id: str, path: str) -> Step | None:
        with self.database.autocommit() as connection:
            return run_reads.read_step(connection, run_id, path)

    def read_item(self, run_id: str, path: str) -> Any:
        with self.database.autocommit() as connection:
            return connection.scalar(select(steps.c.item).where(steps.c.run_id == run_id, steps.c.path == path))

    def retries_of(self, run_id: str) -> int:
        """The number of retries that the run's steps took from its retry budget."""
        with self.database.autocommit() as connection:
            return connection.scalar(select(runs.c.retries).where(runs.c.id == run_id)) or 0

    def has_fallen_back(self, run_id: str, path: str) -> bool:
        with self.database.autocommit() as connection:
            wanted = select(steps.c.fallback).where(steps.c.run_id == run_id, steps.c.path == path)
            return connection.scalar(wanted) is not None

    def failure_of(self, run_id: str) -> tuple[str | None, dict[str, Any] | None]:
        """The step that failed the run, and its error."""
        with self.database.autocommit() as connection:
            row = connection.execute(select(runs.c.failed_step, runs.c.error).where(runs.c.id == run_id)).one()
        return row.failed_step, row.error

    def read_start(self, claim: Claim, of: WorkflowVersion | None) -> tuple[Any, RunFacts] | None:
        """The input and the facts of the run, read before a claim. None: a claim would be stale."""
        startable = select(steps.c.path).where(guard(claim, "claim_step"), run_goes_on(claim.run_id, of)).exists()
        with self.database.autocommit() as connection:
            row = connection.execute(select(runs.c.input, *FACTS).where(runs.c.id == claim.run_id, startable)).first()
        return None if row is None else (row.input, facts_of(row))

    def token_of(self, run_id: str, path: str) -> tuple[str, int, str | None] | None:
        """(status, execution token, executor), to find out whether a commit whose answer was lost took effect."""
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
