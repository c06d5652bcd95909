"""Ends runs from outside, in portable SQL: children of runs that have ended or were rewound, revoked runs, and runs
whose deadline has passed, which fail like any failed run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, case, select, true, tuple_, update

from rival_client.db.guards import run_can, step_can
from rival_client.db.locks import lock_run
from rival_client.db.run_tables import runs, steps
from rival_client.db.types import after, now
from rival_client.errors import RunNotFound
from rival_client.model import history_entries as entries
from rival_client.model import statuses
from rival_client.model.kinds import LEAVES
from rival_client.model.starts.queues import Route
from rival_client.model.timers import EARLY
from rival_client.sql import orphans as orphan_statements
from rival_client.sql import runs as run_statements
from rival_client.sql.checkpoint_ends import wake_parent
from rival_client.sql.orphans import leave_awaited
from rival_client.sql.tickets import withdraw
from rival_client.sql.wake import ReadyStep
from rival_workers.engine.effects import Advance
from rival_workers.store.claim_records import Claim, FinishResult
from rival_workers.store.sql.composite_results import failed_with
from rival_workers.store.sql.guards import NAMED
from rival_workers.store.sql.locks import in_lock_order
from rival_workers.store.sql.part import StorePart
from rival_workers.store.sql.scopes import cancel_below
from rival_workers.store.sql.step_transitions import KEEPER, StepTransitionsSql, as_text, started_detail
from rival_workers.store.sweep_records import NamedAttempt


class OrphansSql(StorePart):
    def orphans(self, limit: int, after: str = "") -> list[tuple[str, str]]:
        """(run id, actor) of children that must be cancelled, ordered by id. The actor names the parent."""
        with self.database.autocommit() as connection:
            return orphan_statements.list_orphans(connection, limit, after)

    def orphans_of(self, run_id: str, limit: int) -> list[tuple[str, str]]:
        with self.database.autocommit() as connection:
            return orphan_statements.orphans_of(connection, run_id, limit)

    def cancel_orphan(self, run_id: str, by: str) -> bool:
        """False: the run had already ended. No run waits for an orphan, so none is woken."""
        with self.database.transaction() as connection:
            try:
                return run_statements.cancel_run(connection, run_id, by)
            except RunNotFound:
                orphan_statements.delete_orphan(connection, run_id)
                return False

    def attempts_named(self, places: Sequence[tuple[str, str]]) -> list[NamedAttempt]:
        """The unfinished steps at these places (run id, path), with their current state."""
        at_places = tuple_(steps.c.run_id, steps.c.path).in_(places)
        found = NAMED.where(at_places, steps.c.status.in_(statuses.STEP_OPEN))
        with self.database.autocommit() as connection:
            return [
                NamedAttempt(
                    Claim(row.run_id, row.path, row.execution_token),
                    row.status,
                    row.attempts,
                    row.lost,
                    row.executor_id,
                    row.workflow,
                    row.version,
                    row.kind,
                    Route(row.queue, row.level),
                )
                for row in connection.execute(found)
            ]

    def cancel_unbegun(self, run_id: str, by: str) -> tuple[bool, ReadyStep | None]:
        """Cancel a run that is still pending, and wake the flow that waits for it."""
        with self.database.transaction() as connection:
            # Most ids belong to no run and need no lock.
            status = connection.scalar(select(runs.c.status).where(runs.c.id == run_id))
            if status != statuses.PENDING or lock_run(connection, run_id).status != statuses.PENDING:
                return False, None
            slots = run_statements.end_as_cancelled(connection, run_id, by)
            ready = wake_parent(connection, run_id, self.ring_grace)
            run_statements.conclude_cancel(connection, run_id, by, slots)
            return True, ready


class ExpirySql(StepTransitionsSql):
    def expire_run(self, run_id: str, advance: Advance) -> FinishResult | None:
        """Fail a run that has not ended by its deadline. None: it has ended, is already failing, or has time left.
        Handlers and compensations of a failed run have no deadline."""

        def once(connection: Connection, alone: bool) -> FinishResult | None:
            run = _expired(connection, run_id)
            return None if run is None else self._fail(connection, run, advance)

        return in_lock_order(self.database, run_id, once, alone=True)

    def _fail(self, connection: Connection, run: Any, advance: Advance) -> FinishResult:
        following = self._following(connection, run.id, None, advance, True, by=KEEPER)
        if run.was_pending:
            following.writer.add(entries.STARTED, **started_detail(run))
        step = _first_open_leaf(connection, run.id)
        leave_awaited(connection, run.id, true())
        stopped, slots = cancel_below(connection, run.id, true())
        following.slots += slots + withdraw(connection, run.id)
        following.ended_keys |= dict.fromkeys(stopped)
        deadline = as_text(run.deadline_at)
        following.writer.add(entries.EXPIRED, deadline=deadline, open=stopped)
        following.outcome = failed_with(_error(deadline, step), step)
        following.apply(advance.effects)
        return following.conclude()


def _expired(connection: Connection, run_id: str) -> Any:
    """Lock the run's row and set it to running."""
    is_open = (runs.c.id == run_id, run_can("expire_run"), runs.c.deadline_at <= after(EARLY))
    # The run is already failing, so the keeper need not look at it again.
    connection.execute(update(runs).where(*is_open, runs.c.error.is_not(None)).values(ring_at=None))
    # Locked, because a run begins without the lock of the run.
    status = connection.scalar(select(runs.c.status).where(*is_open, runs.c.error.is_(None)).with_for_update())
    if status is None:
        return None
    was_pending = status == statuses.PENDING
    names = ("id", "workflow", "version", "input", "labels", "policies", "deadline_at", "priority")
    columns = [runs.c[name] for name in names]
    begun = {"started_at": now(), "token": runs.c.token + 1} if was_pending else {}
    return connection.execute(
        update(runs)
        .where(*is_open)
        .values(status=statuses.RUNNING, ring_at=None, rings=0, parked=None, **begun)
        .returning(*columns, case((true(), was_pending)).label("was_pending"))
    ).one()


def _first_open_leaf(connection: Connection, run_id: str) -> str | None:
    is_open = (steps.c.run_id == run_id, step_can("cancel_below"), steps.c.kind.in_(sorted(LEAVES)))
    return connection.scalar(select(steps.c.path).where(*is_open).order_by(steps.c.created_at, steps.c.path).limit(1))


def _error(deadline: str, step: str | None) -> dict[str, Any]:
    where = "before it began" if step is None else f"at step {step!r}"
    return {"type": "DeadlineExceeded", "message": f"the run did not end by its deadline, {deadline}; it was {where}"}
