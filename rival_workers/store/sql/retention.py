"""Retention, in portable SQL: deletes ended runs in small batches.

Only a run without a parent is deleted. Children are detached when their parent is deleted, and are then kept for their
own retention. So a run below an unfinished run is never deleted, and no query has to read the runs that must stay.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import ColumnElement, Connection, delete, select, update

from rival_client.db.event_tables import deliveries, waits
from rival_client.db.failure_tables import dead_letters
from rival_client.db.locks import try_lock_runs
from rival_client.db.log_tables import history, logs
from rival_client.db.run_tables import attempts, labels, runs, steps, workflows
from rival_client.db.types import after
from rival_workers.store.sql.events import delete_deliveries
from rival_workers.store.sql.guards import chosen
from rival_workers.store.sql.part import StorePart


class RetentionSql(StorePart):
    def retentions(self, default: float) -> list[tuple[str, float]]:
        """How many seconds the ended runs of each workflow are kept: as its last activated version says, or by default.
        Workflows whose runs are kept forever are left out."""
        newest_last = select(workflows.c.name, workflows.c.retention).order_by(workflows.c.activated_at)
        with self.database.autocommit() as connection:
            said = {row.name: row.retention for row in connection.execute(newest_last)}
        ages = ((workflow, default if own is None else own) for workflow, own in said.items())
        return [(workflow, age) for workflow, age in ages if age > 0]

    def delete_ended_before(self, age: float, limit: int, workflow: str) -> int:
        """Delete up to `limit` runs of a workflow that ended more than `age` seconds ago, with all their rows. Their
        children are detached. Returns the number of deleted runs."""
        may_go = _may_go(age, workflow)
        with self.database.autocommit() as connection:
            old = list(connection.scalars(select(runs.c.id).where(*may_go).order_by(runs.c.completed_at).limit(limit)))
        # In separate transactions: a run may have very many children.
        while old and self._detach_children(old, limit) == limit:
            pass
        with self.database.transaction() as connection:
            return _delete(connection, old, may_go)

    def _detach_children(self, parents: Sequence[str], limit: int) -> int:
        children = (
            select(runs.c.id).where(runs.c.parent_run_id.in_(parents)).limit(limit).with_for_update(skip_locked=True)
        )
        with self.database.transaction() as connection:
            alone = update(runs).where(runs.c.id.in_(chosen(children))).values(parent_run_id=None, parent_path=None)
            return len(connection.execute(alone.returning(runs.c.id)).all())


def _may_go(age: float, workflow: str) -> tuple[ColumnElement[bool], ...]:
    """A run with dead letters stays until they are redriven or dropped."""
    has_dead_letters = select(dead_letters.c.run_id).where(dead_letters.c.run_id == runs.c.id).exists()
    ended = runs.c.completed_at < after(-age)
    return runs.c.workflow == workflow, runs.c.parent_run_id.is_(None), ended, ~has_dead_letters


def _delete(connection: Connection, candidates: Sequence[str], may_go: tuple[ColumnElement[bool], ...]) -> int:
    """Delete the candidates that may still be deleted: an operator may have reopened one, or a child may have been
    locked. A run that another transaction has locked stays until the next round, since that transaction may write to
    its history."""
    candidates = try_lock_runs(connection, candidates)
    child: Any = runs.alias("child")
    has_children = select(child.c.id).where(child.c.parent_run_id == runs.c.id).exists()
    chosen_ones = select(runs.c.id).where(runs.c.id.in_(candidates), *may_go, ~has_children)
    old = list(connection.scalars(chosen_ones.with_for_update(skip_locked=True)))
    delete_deliveries(connection, deliveries.c.run_id.in_(old))
    for table in (logs, history, attempts, waits, steps, labels):
        connection.execute(delete(table).where(table.c.run_id.in_(old)))
    connection.execute(delete(runs).where(runs.c.id.in_(old)))
    return len(old)
