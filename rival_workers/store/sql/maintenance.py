"""Work of the keeper, in portable SQL: finds due rows and republishes all rows after the broker lost its data."""

from __future__ import annotations

from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, and_, case, false, func, literal, or_, select, tuple_, update

from rival_client.db.fleet_tables import schedules
from rival_client.db.limit_tables import tickets
from rival_client.db.run_tables import runs, steps
from rival_client.db.types import now
from rival_client.model.policies.rulebook import Rulebook
from rival_client.sql.fleet_rules import read_rulebook, version_number
from rival_client.sql.recovery import make_due
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
        that no worker can run is not returned in every round.
        """
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

    def ring_all(self, within: float, limit: int) -> int:
        """The broker lost its data: make up to `limit` rows due now that would be due `within` seconds. Rows that wait
        for a later time, and parked rows, stay. Returns the number of changed rows."""
        with self.database.transaction() as connection:
            return len(make_due(connection, within, limit))
