"""Cancels runs for others, in portable SQL: children of runs that have ended or gone back, and revoked runs."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import select, tuple_

from rival_client.db.locks import lock_run
from rival_client.db.run_tables import runs, steps
from rival_client.errors import RunNotFound
from rival_client.model import statuses
from rival_client.model.queues import Route
from rival_client.sql import orphans as orphan_statements
from rival_client.sql import runs as run_statements
from rival_client.sql.checkpoint_ends import wake_parent
from rival_client.sql.wake import ReadyStep
from rival_workers.store.claim_records import Claim
from rival_workers.store.sql.guards import NAMED
from rival_workers.store.sql.part import StorePart
from rival_workers.store.sweep_records import NamedAttempt


class OrphansSql(StorePart):
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
            # Most ids name no run; those need no lock.
            status = connection.scalar(select(runs.c.status).where(runs.c.id == run_id))
            if status != statuses.PENDING or lock_run(connection, run_id).status != statuses.PENDING:
                return False, None
            slots = run_statements.end_as_cancelled(connection, run_id, by)
            ready = wake_parent(connection, run_id, self.ring_grace)
            run_statements.conclude_cancel(connection, run_id, by, slots)
            return True, ready
