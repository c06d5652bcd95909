"""Executors and their leases, in portable SQL, and the attempts of dead executors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Select, delete, insert, literal, select, tuple_, update

from rival_client.db.fleet_tables import executors
from rival_client.db.run_tables import steps
from rival_client.db.types import after, clock, now
from rival_client.model import history_entries as entries
from rival_client.sql.history import record
from rival_workers.store.claim_records import Claim
from rival_workers.store.sql.guards import RUNNING, chosen, guard, running_of
from rival_workers.store.sql.part import StorePart
from rival_workers.store.sweep_records import ExecutorRow, RunningAttempt


class ExecutorsSql(StorePart):
    def add_executor(
        self, executor: str, host: str, pid: int, worker: str, lease: float, queues: Sequence[str] | None = None
    ) -> None:
        """`queues`: the queues that the executor serves."""
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
                    queues=None if queues is None else list(queues),
                )
            )

    def beat(self, executor: str, lease: float, problem: str | None = None, **about: Any) -> bool:
        """False: the executor was declared dead in the meantime and must take a new id. `problem`: what the executor
        reports to `rival doctor`. `about`: `busy`, `slots` and `workflows`, shown in the list of the fleet."""
        with self.database.autocommit() as connection:
            beaten = connection.execute(
                update(executors)
                .where(executors.c.id == executor, executors.c.expires_at > now())
                .values(beat_at=now(), expires_at=after(lease), problem=problem, **about)
                .returning(clock())
            ).scalar_one_or_none()
        if beaten is not None:
            self.database_clock.read(beaten.timestamp())
        return beaten is not None

    def executors_on(self, host: str) -> list[ExecutorRow]:
        """The executors of one machine that are not known to be dead."""
        statement = select(executors.c.id, executors.c.pid, executors.c.worker).where(
            executors.c.host == host, executors.c.expires_at > now()
        )
        with self.database.autocommit() as connection:
            return [ExecutorRow(row.id, row.pid, row.worker) for row in connection.execute(statement)]

    def expire_executors(self, host: str, pid: int) -> int:
        """Expire the executors of a process that is known to be dead, without waiting for the lease."""
        with self.database.autocommit() as connection:
            return connection.execute(
                update(executors)
                .where(executors.c.host == host, executors.c.pid == pid, executors.c.expires_at > now())
                .values(expires_at=now())
            ).rowcount

    def delete_executors(self, dead: Sequence[str]) -> None:
        with self.database.autocommit() as connection:
            # Another keeper may delete the same rows.
            still_there = select(executors.c.id).where(executors.c.id.in_(dead)).with_for_update(skip_locked=True)
            connection.execute(delete(executors).where(executors.c.id.in_(chosen(still_there))))

    def dead_executors(self) -> list[str]:
        """Executors whose lease has expired."""
        with self.database.autocommit() as connection:
            return list(connection.scalars(select(executors.c.id).where(executors.c.expires_at <= now())))

    # -- their attempts ---------------------------------------------------------------------------------------

    def lost_attempts(
        self, dead: Sequence[str], limit: int, after: tuple[str, str] | None = None
    ) -> list[RunningAttempt]:
        """The running attempts of the given executors, ordered by run and path. `after`: the last one of the previous
        page."""
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

    def adopt_attempts(self, executor: str, successor: str) -> int:
        """Move the attempts of an executor to its new id, so that a database outage longer than a lease does not
        restart all of them."""
        with self.database.without_seqscan() as connection:
            found = [running_of(row) for row in connection.execute(RUNNING.where(steps.c.executor_id == executor))]
        # One row per transaction: several rows would have to be locked in order.
        return sum(self._adopt(attempt.claim, executor, successor) for attempt in found)

    def _adopt(self, claim: Claim, executor: str, successor: str) -> bool:
        with self.database.transaction() as connection:
            adopted = connection.execute(
                update(steps)
                .where(guard(claim, "beat_step"), steps.c.executor_id == executor)
                .values(executor_id=successor)
            )
            if adopted.rowcount:
                record(connection, claim.run_id, claim.path, entries.ADOPTED, by=successor, executor=executor)
            return adopted.rowcount == 1
