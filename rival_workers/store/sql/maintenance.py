"""Keeping, in portable SQL: what is due, what was lost, who is alive."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, Row, Select, delete, func, insert, literal, or_, select, tuple_, update

from rival_client.db.database import Database
from rival_client.db.tables import after, executors, now, runs, schedules, steps
from rival_client.sql.history import record
from rival_client.sql.recovery import make_due
from rival_workers.store.interface import Claim, Due, ExecutorRow, RunningAttempt, SweepOptions
from rival_workers.store.sql.guards import RUNNING, any_is_past, backed_off, chosen, due_of, guard, running_of

_ANYTHING_DUE = select(or_(any_is_past(runs.c.ring_at), any_is_past(steps.c.ring_at)))

_NEXT_LOOK = select(
    select(func.min(runs.c.ring_at)).scalar_subquery().label("of_runs"),
    select(func.min(steps.c.ring_at)).scalar_subquery().label("of_steps"),
    select(func.min(schedules.c.next_at)).where(schedules.c.error.is_(None)).scalar_subquery().label("of_schedules"),
    now().label("now"),
)


class MaintenanceSql:
    database: Database

    def due(self, look: SweepOptions) -> list[Due]:
        """What must be looked at now. Each row is put off by a backoff at once, so that several keepers share the
        work and a row that nobody can help is not looked at in every round.
        """
        with self.database.autocommit() as connection:
            # Most rounds find nothing; they should cost next to nothing.
            if not connection.scalar(_ANYTHING_DUE):
                return []
        with self.database.transaction() as connection:
            rows = self._due_runs(connection, look) + self._due_steps(connection, look)
        return [due_of(row) for row in rows]

    def next_look(self) -> float | None:
        """Seconds until something is due, 0 or less if it is; None: nothing waits for its time."""
        with self.database.autocommit() as connection:
            row = connection.execute(_NEXT_LOOK).one()
        times = [at for at in (row.of_runs, row.of_steps, row.of_schedules) if at is not None]
        return (min(times) - row.now).total_seconds() if times else None

    def _due_runs(self, connection: Connection, look: SweepOptions) -> list[Row[Any]]:
        due = (
            select(runs.c.id)
            .where(runs.c.ring_at <= now())
            .order_by(runs.c.ring_at)
            .limit(look.limit)
            .with_for_update(skip_locked=True)
        )
        return list(
            connection.execute(
                update(runs)
                .where(runs.c.id.in_(chosen(due)))
                .values(ring_at=backed_off(runs.c.rings, look), rings=runs.c.rings + 1)
                .returning(
                    runs.c.id, literal(None).label("path"), runs.c.status, runs.c.token, literal(0).label("timeout"),
                    literal(0).label("attempts"), literal(0).label("lost"), runs.c.rings - 1,
                    runs.c.workflow, runs.c.version, literal("run").label("kind"),
                    literal(None).label("due_at"), now().label("now"),
                )
            )
        )  # fmt: skip

    def _due_steps(self, connection: Connection, look: SweepOptions) -> list[Row[Any]]:
        due = (
            select(steps.c.run_id, steps.c.path)
            .where(steps.c.ring_at <= now())
            .order_by(steps.c.ring_at)
            .limit(look.limit)
            .with_for_update(skip_locked=True)
        )
        found = connection.execute(
            update(steps)
            .where(tuple_(steps.c.run_id, steps.c.path).in_(chosen(due)))
            .values(ring_at=backed_off(steps.c.rings, look), rings=steps.c.rings + 1)
            .returning(steps.c.run_id, steps.c.path)
        ).all()
        columns = (
            steps.c.run_id, steps.c.path, steps.c.status, steps.c.execution_token, steps.c.timeout_token,
            steps.c.attempts, steps.c.lost, steps.c.rings - 1, runs.c.workflow, runs.c.version, steps.c.kind,
            steps.c.due_at, now().label("now"),
        )  # fmt: skip
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
        """Running attempts of executors without a row: a claim that was committed after its executor was forgotten."""
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
        """The broker forgot everything: make up to `limit` rows due now whose look would come `within` seconds.
        Rows whose time has not come, and parked ones, are left alone. How many were changed.
        """
        with self.database.transaction() as connection:
            return len(make_due(connection, within, limit))

    # -- executors ----------------------------------------------------------------------------------------

    def add_executor(self, executor: str, host: str, pid: int, worker: str, lease: float) -> None:
        with self.database.transaction() as connection:
            connection.execute(
                insert(executors).values(
                    id=executor, host=host, pid=pid, worker=worker,
                    started_at=now(), beat_at=now(), expires_at=after(lease),
                )
            )  # fmt: skip

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
        """What still runs under an executor's old id goes on under its new one: a database that was away for longer
        than a lease is no reason to start everything again.
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
