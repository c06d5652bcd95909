"""Work of the keeper, in portable SQL: due rows, attempts of dead executors, executors, orphans; and revoked runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, Row, Select, delete, func, insert, literal, or_, select, tuple_, update

from rival_client.db.database import Database
from rival_client.db.locks import lock_run
from rival_client.db.tables import after, executors, now, runs, schedules, steps
from rival_client.errors import RunNotFound
from rival_client.sql import orphans as orphan_statements
from rival_client.sql import runs as run_statements
from rival_client.sql.history import record
from rival_client.sql.recovery import make_due
from rival_client.sql.wake import ReadyStep, wake_parent
from rival_workers.store.interface import Claim, Due, ExecutorRow, NamedAttempt, RunningAttempt, SweepOptions
from rival_workers.store.sql.guards import RUNNING, any_is_past, backed_off, chosen, due_of, guard, running_of

_ANYTHING_DUE = select(or_(any_is_past(runs.c.ring_at), any_is_past(steps.c.ring_at)))

_NEXT_DUE = select(
    select(func.min(runs.c.ring_at)).scalar_subquery().label("of_runs"),
    select(func.min(steps.c.ring_at)).scalar_subquery().label("of_steps"),
    select(func.min(schedules.c.next_at)).where(schedules.c.error.is_(None)).scalar_subquery().label("of_schedules"),
    now().label("now"),
)


class MaintenanceSql:
    database: Database
    ring_grace: float

    def due(self, options: SweepOptions) -> list[Due]:
        """Rows that are due. Each is postponed by a backoff at once, so that several keepers share the work, and a row
        that no worker can run is not returned in every round.
        """
        with self.database.autocommit() as connection:
            # Most rounds find nothing; they should cost next to nothing.
            if not connection.scalar(_ANYTHING_DUE):
                return []
        with self.database.transaction() as connection:
            rows = self._due_runs(connection, options) + self._due_steps(connection, options)
        return [due_of(row) for row in rows]

    def next_look(self) -> float | None:
        """Seconds until something is due, 0 or less if it is; None: nothing waits for its time."""
        with self.database.autocommit() as connection:
            row = connection.execute(_NEXT_DUE).one()
        times = [at for at in (row.of_runs, row.of_steps, row.of_schedules) if at is not None]
        return (min(times) - row.now).total_seconds() if times else None

    def _due_runs(self, connection: Connection, options: SweepOptions) -> list[Row[Any]]:
        due = (
            select(runs.c.id)
            .where(runs.c.ring_at <= now())
            .order_by(runs.c.ring_at)
            .limit(options.limit)
            .with_for_update(skip_locked=True)
        )
        return list(
            connection.execute(
                update(runs)
                .where(runs.c.id.in_(chosen(due)))
                .values(ring_at=backed_off(runs.c.rings, options), rings=runs.c.rings + 1)
                .returning(
                    runs.c.id,
                    literal(None).label("path"),
                    runs.c.status,
                    runs.c.token,
                    literal(0).label("timeout"),
                    literal(0).label("attempts"),
                    literal(0).label("lost"),
                    runs.c.rings - 1,
                    runs.c.workflow,
                    runs.c.version,
                    literal("run").label("kind"),
                    literal(None).label("due_at"),
                    now().label("now"),
                )
            )
        )

    def _due_steps(self, connection: Connection, options: SweepOptions) -> list[Row[Any]]:
        due = (
            select(steps.c.run_id, steps.c.path)
            .where(steps.c.ring_at <= now())
            .order_by(steps.c.ring_at)
            .limit(options.limit)
            .with_for_update(skip_locked=True)
        )
        found = connection.execute(
            update(steps)
            .where(tuple_(steps.c.run_id, steps.c.path).in_(chosen(due)))
            .values(ring_at=backed_off(steps.c.rings, options), rings=steps.c.rings + 1)
            .returning(steps.c.run_id, steps.c.path)
        ).all()
        columns = (
            steps.c.run_id,
            steps.c.path,
            steps.c.status,
            steps.c.execution_token,
            steps.c.timeout_token,
            steps.c.attempts,
            steps.c.lost,
            steps.c.rings - 1,
            runs.c.workflow,
            runs.c.version,
            steps.c.kind,
            steps.c.due_at,
            now().label("now"),
        )
        keys = [(row.run_id, row.path) for row in found]
        joined = select(*columns).join(runs, runs.c.id == steps.c.run_id)
        return list(connection.execute(joined.where(tuple_(steps.c.run_id, steps.c.path).in_(keys)))) if keys else []

    def dead_executors(self) -> list[str]:
        """Those that have not beaten within their lease."""
        with self.database.autocommit() as connection:
            return list(connection.scalars(select(executors.c.id).where(executors.c.expires_at <= now())))

    def lost_attempts(
        self, dead: Sequence[str], limit: int, after: tuple[str, str] | None = None
    ) -> list[RunningAttempt]:
        """What the given executors were running, in the order of run and path. `after`: the last one of the page
        before."""
        return self._page(RUNNING.where(steps.c.executor_id.in_(dead)), limit, after)

    def stray_attempts(self, limit: int, after: tuple[str, str] | None = None) -> list[RunningAttempt]:
        """Running attempts of executors without a row: claims committed after their executor was deleted."""
        known = select(executors.c.id).where(executors.c.id == steps.c.executor_id).exists()
        return self._page(RUNNING.where(~known), limit, after)

    def _page(self, attempts: Select[Any], limit: int, after: tuple[str, str] | None) -> list[RunningAttempt]:
        place = tuple_(steps.c.run_id, steps.c.path)
        if after is not None:
            attempts = attempts.where(place > tuple_(literal(after[0]), literal(after[1])))
        with self.database.without_seqscan() as connection:
            found = connection.execute(attempts.order_by(steps.c.run_id, steps.c.path).limit(limit))
            return [running_of(row) for row in found]

    def ring_all(self, within: float, limit: int) -> int:
        """The broker lost its data: make up to `limit` rows due now that would be due `within` seconds. Rows that wait
        for their time, and parked ones, stay. Returns how many were changed.
        """
        with self.database.transaction() as connection:
            return len(make_due(connection, within, limit))

    # -- executors ----------------------------------------------------------------------------------------

    def add_executor(self, executor: str, host: str, pid: int, worker: str, lease: float) -> None:
        with self.database.transaction() as connection:
            connection.execute(
                insert(executors).values(
                    id=executor,
                    host=host,
                    pid=pid,
                    worker=worker,
                    started_at=now(),
                    beat_at=now(),
                    expires_at=after(lease),
                )
            )

    def beat(self, executor: str, lease: float, problem: str | None = None) -> bool:
        """False: the executor was declared dead in the meantime and must take a new id. `problem`: what it says is
        wrong with it, for `rival doctor`."""
        with self.database.autocommit() as connection:
            beaten = connection.execute(
                update(executors)
                .where(executors.c.id == executor, executors.c.expires_at > now())
                .values(beat_at=now(), expires_at=after(lease), problem=problem)
            )
            return beaten.rowcount == 1

    def adopt_attempts(self, executor: str, successor: str) -> int:
        """Attempts of an executor continue under its new id. So a database that was unavailable for longer than a lease
        does not restart them all.
        """
        with self.database.without_seqscan() as connection:
            found = [running_of(row) for row in connection.execute(RUNNING.where(steps.c.executor_id == executor))]
        # One row at a time: several would have to be locked in an order.
        return sum(self._adopt(attempt.claim, executor, successor) for attempt in found)

    def _adopt(self, claim: Claim, executor: str, successor: str) -> bool:
        with self.database.transaction() as connection:
            adopted = connection.execute(
                update(steps)
                .where(guard(claim, "beat_step"), steps.c.executor_id == executor)
                .values(executor_id=successor)
            )
            if adopted.rowcount:
                record(connection, claim.run_id, claim.path, "adopted", by=successor, executor=executor)
            return adopted.rowcount == 1

    def executors_on(self, host: str) -> list[ExecutorRow]:
        """The executors of one machine that are not known to be dead."""
        statement = select(executors.c.id, executors.c.pid, executors.c.worker).where(
            executors.c.host == host, executors.c.expires_at > now()
        )
        with self.database.autocommit() as connection:
            return [ExecutorRow(row.id, row.pid, row.worker) for row in connection.execute(statement)]

    def expire_executors(self, host: str, pid: int) -> int:
        """The process is known to be dead: don't wait for its lease."""
        with self.database.autocommit() as connection:
            return connection.execute(
                update(executors)
                .where(executors.c.host == host, executors.c.pid == pid, executors.c.expires_at > now())
                .values(expires_at=now())
            ).rowcount

    def forget_executors(self, dead: Sequence[str]) -> None:
        with self.database.autocommit() as connection:
            # Another keeper may be at it, with its own list.
            still_there = select(executors.c.id).where(executors.c.id.in_(dead)).with_for_update(skip_locked=True)
            connection.execute(delete(executors).where(executors.c.id.in_(chosen(still_there))))

    # -- cancelling ---------------------------------------------------------------------------------------

    def orphans(self, limit: int, after: str = "") -> list[tuple[str, str]]:
        """(run id, on whose behalf) of children that are still to be cancelled, in the order of their ids."""
        with self.database.autocommit() as connection:
            return orphan_statements.list_orphans(connection, limit, after)

    def orphans_of(self, run_id: str, limit: int) -> list[tuple[str, str]]:
        with self.database.autocommit() as connection:
            return orphan_statements.orphans_of(connection, run_id, limit)

    def cancel_orphan(self, run_id: str, by: str) -> bool:
        """False: it had ended already. No run waits for it, so none is woken."""
        with self.database.transaction() as connection:
            try:
                return run_statements.cancel_run(connection, run_id, by)
            except RunNotFound:
                orphan_statements.delete_orphan(connection, run_id)
                return False

    def attempts_named(self, places: Sequence[tuple[str, str]]) -> list[NamedAttempt]:
        """The unfinished steps at these (run id, path), as they are now."""
        columns = (
            steps.c.run_id,
            steps.c.path,
            steps.c.status,
            steps.c.execution_token,
            steps.c.attempts,
            steps.c.lost,
            steps.c.executor_id,
            runs.c.workflow,
            runs.c.version,
            steps.c.kind,
        )
        open_ = ("pending", "running", "waiting_retry", "waiting")
        found = (
            select(*columns)
            .join(runs, runs.c.id == steps.c.run_id)
            .where(tuple_(steps.c.run_id, steps.c.path).in_(places), steps.c.status.in_(open_))
        )
        with self.database.autocommit() as connection:
            return [
                NamedAttempt(Claim(run_id, path, token), status, *rest)
                for run_id, path, status, token, *rest in connection.execute(found)
            ]

    def cancel_unbegun(self, run_id: str, by: str) -> tuple[bool, ReadyStep | None]:
        """Cancel a run that is still pending, and wake the flow that waits for it."""
        with self.database.transaction() as connection:
            # Most ids name no run; those need no lock.
            status = connection.scalar(select(runs.c.status).where(runs.c.id == run_id))
            if status != "pending" or lock_run(connection, run_id).status != "pending":
                return False, None
            run_statements.end_as_cancelled(connection, run_id, by)
            ready = wake_parent(connection, run_id, self.ring_grace)
            run_statements.leave_orphans(connection, run_id, by, True)
            return True, ready
