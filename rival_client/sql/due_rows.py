"""Makes rows that wait for a worker due at once, so that the keepers publish them."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, Select, Table, and_, or_, select, tuple_, update

from rival_client.db.event_tables import events
from rival_client.db.run_tables import runs, steps
from rival_client.db.types import after, now
from rival_client.model import statuses
from rival_client.model.timers import NEVER_PUBLISHED


def make_due(connection: Connection, within: float, limit: int) -> list[str]:
    """Make up to `limit` rows due now whose look would come `within` seconds. Rows whose time has not come, and parked
    ones, are left alone. The status of each that was changed.
    """
    # As if no message had been published: any keeper that finds the rows publishes, whatever backlog there is.
    unpublished = {"ring_at": now(), "rings": NEVER_PUBLISHED}
    of_runs, of_steps = (
        select(*table.primary_key.columns)
        .where(table.c.ring_at > now(), table.c.ring_at <= after(within), waits_for_worker(table))
        .order_by(table.c.ring_at)
        .limit(limit)
        .with_for_update(skip_locked=True)
        for table in (runs, steps)
    )
    found_runs = connection.scalars(
        update(runs).where(runs.c.id.in_(chosen(of_runs))).values(unpublished).returning(runs.c.status)
    ).all()
    found_steps = connection.scalars(
        update(steps)
        .where(tuple_(steps.c.run_id, steps.c.path).in_(chosen(of_steps)))
        .values(unpublished)
        .returning(steps.c.status)
    ).all()
    return [*found_runs, *found_steps]


def chosen(rows: Select[Any]) -> Select[Any]:
    """The rows of a locking SELECT with a LIMIT, chosen once: as a mere subquery Postgres may run it again for every
    row of the UPDATE, and so choose more than the limit. A CTE that locks is never inlined.
    """
    return select(rows.cte("chosen"))


def waits_for_worker(table: Table) -> Any:
    """For a worker, and for nothing else."""
    if table is events:
        return table.c.status == "sent"
    if table is runs:
        is_due = or_(runs.c.due_at.is_(None), runs.c.due_at <= now())
        return and_(runs.c.status == statuses.PENDING, runs.c.parked.is_(None), is_due)
    its_time = steps.c.due_at <= now()
    return and_(
        steps.c.parked.is_(None),
        or_(
            and_(
                steps.c.status.in_((statuses.PENDING, statuses.WAITING_RETRY)), or_(steps.c.due_at.is_(None), its_time)
            ),
            and_(steps.c.status == statuses.WAITING, its_time),
        ),
    )
