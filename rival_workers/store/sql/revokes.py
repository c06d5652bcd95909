"""What a revoke needs, in portable SQL: the attempt that a task id names, and the end of a run that has not begun."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import select, tuple_

from rival_client.db.database import Database
from rival_client.db.locks import lock_run
from rival_client.db.tables import runs, steps
from rival_client.sql import runs as run_statements
from rival_client.sql.wake import ReadyStep, wake_parent
from rival_workers.store.interface import Claim, NamedAttempt


class RevokesSql:
    database: Database
    ring_grace: float

    def attempts_named(self, places: Sequence[tuple[str, str]]) -> list[NamedAttempt]:
        """The unfinished steps at these (run id, path), as they are now."""
        columns = (
            steps.c.run_id, steps.c.path, steps.c.status, steps.c.execution_token, steps.c.attempts, steps.c.lost,
            steps.c.executor_id, runs.c.workflow, runs.c.version, steps.c.kind,
        )  # fmt: skip
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
