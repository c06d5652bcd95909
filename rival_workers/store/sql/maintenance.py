"""Work of the keeper, in portable SQL: finds due rows, republishes all rows after the broker lost its data, and deletes
ended runs in small batches (retention).

Only a run without a parent is deleted. Children are detached when their parent is deleted, and are then kept for their
own retention. So a run below an unfinished run is never deleted, and no query has to read the runs that must stay.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Row,
    and_,
    case,
    delete,
    false,
    func,
    literal,
    or_,
    select,
    tuple_,
    update,
)

from rival_client.db.event_tables import deliveries, waits
from rival_client.db.failure_tables import dead_letters
from rival_client.db.fleet_tables import schedules
from rival_client.db.limit_tables import tickets
from rival_client.db.locks import try_lock_runs
from rival_client.db.log_tables import history, logs
from rival_client.db.run_tables import attempts, labels, runs, steps, workflows
from rival_client.db.types import after, now
from rival_client.model.policies.rulebook import Rulebook
from rival_client.sql.fleet_rules import read_rulebook, version_number
from rival_client.sql.recovery import make_due
from rival_workers.store.sql.event_waits import delete_deliveries
from rival_workers.store.sql.guards import STEP_ROUTE, any_is_past, backed_off, chosen, due_of, earliest
from rival_workers.store.sql.part import StorePart
from rival_workers.store.sql.sweeps import due_tickets
from rival_workers.store.sweep_records import Due, SweepOptions

_ANYTHING_DUE = select(
    or_(any_is_past(runs.c.ring_at), any_is_past(steps.c.ring_at), any_is_past(tickets.c.ring_at)).label("anything"),
    version_number().label("rules"),
)

#: Of paused runs and steps, only the time limits are due.
_GOES_ON = or_(runs.c.paused_at.is_(None), runs.c.deadline_at.is_not(None))
_STEP_GOES_ON = or_(~steps.c.paused, steps.c.timeout_at.is_not(None), steps.c.deadline_at.is_not(None))
_NEXT_DUE = select(
    select(func.min(runs.c.ring_at)).where(_GOES_ON).scalar_subquery().label("of_runs"),
    select(func.min(steps.c.ring_at)).where(_STEP_GOES_ON).scalar_subquery().label("of_steps"),
    select(func.min(tickets.c.ring_at)).scalar_subquery().label("of_tickets"),
    select(func.min(schedules.c.next_at)).where(schedules.c.error.is_(None)).scalar_subquery().label("of_schedules"),
    now().label("now"),
)


def _by_deadline(at: ColumnElement[Any]) -> ColumnElement[Any]:
    """`at`, or the deadline of the run if it comes first."""
    comes_first = and_(runs.c.deadline_at > now(), runs.c.deadline_at < at)
    return case((comes_first, runs.c.deadline_at), else_=at)


def _next_look(options: SweepOptions) -> Any:
    """After the backoff, but not later than the next limit of the step."""
    limits = (case((limit > now(), limit)) for limit in (steps.c.start_by, steps.c.deadline_at))
    return earliest(backed_off(steps.c.rings, options), *limits)


class MaintenanceSql(StorePart):
    #: The version of the fleet's rules that `due` read last.
    rules_version: int = 0

    def read_rulebook(self) -> Rulebook:
        with self.database.transaction() as connection:
            return read_rulebook(connection)

    def due(self, options: SweepOptions) -> list[Due]:
        """Rows that are due. Each is postponed by a backoff at once, so that several keepers share the work, and a row
        that no worker can run is not returned in every round."""
        with self.database.autocommit() as connection:
            # Most rounds find nothing, so this check must be cheap.
            seen = connection.execute(_ANYTHING_DUE).one()
            self.rules_version = int(seen.rules)
            if not seen.anything:
                return []
        with self.database.transaction() as connection:
            rows = self._due_runs(connection, options) + self._due_steps(connection, options)
            rows += due_tickets(connection, options)
        return [due_of(row) for row in rows]

    def next_look(self) -> float | None:
        """Seconds until something is due, 0 or less if it is due; None: nothing waits for a time."""
        with self.database.autocommit() as connection:
            row = connection.execute(_NEXT_DUE).one()
        times = [at for at in (row.of_runs, row.of_steps, row.of_tickets, row.of_schedules) if at is not None]
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
                .values(ring_at=_by_deadline(backed_off(runs.c.rings, options)), rings=runs.c.rings + 1)
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
                    runs.c.queue,
                    runs.c.priority,
                    runs.c.due_at,
                    literal(None).label("start_by"),
                    literal(None).label("deadline_at"),
                    now().label("now"),
                    func.coalesce(runs.c.deadline_at <= now(), False).label("expired"),
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
            .values(ring_at=_next_look(options), rings=steps.c.rings + 1)
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
            *STEP_ROUTE,
            steps.c.due_at,
            steps.c.start_by,
            steps.c.deadline_at,
            now().label("now"),
            false().label("expired"),
        )
        keys = [(row.run_id, row.path) for row in found]
        joined = select(*columns).join(runs, runs.c.id == steps.c.run_id)
        return list(connection.execute(joined.where(tuple_(steps.c.run_id, steps.c.path).in_(keys)))) if keys else []

    def make_all_due(self, within: float, limit: int) -> int:
        """The broker lost its data: make up to `limit` rows due now that would be due `within` seconds. Rows that wait
        for a later time, and parked rows, stay. Returns the number of changed rows."""
        with self.database.transaction() as connection:
            return len(make_due(connection, within, limit))


# -- retention --------------------------------------------------------------------------------------------


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
