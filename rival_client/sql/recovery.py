"""Manual recovery: makes everything that waits for a worker due at once, and counts what there is to recover. The
keepers of the workers do the rest as usual, so it is safe at any time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from sqlalchemy import Connection, Select, Table, and_, func, literal, or_, select, tuple_, update

from rival_client.db.database import Database
from rival_client.db.event_tables import events, waits
from rival_client.db.fleet_tables import executors
from rival_client.db.limit_tables import tickets
from rival_client.db.run_tables import in_status, orphans, runs, steps
from rival_client.db.types import after, now, one_of
from rival_client.model import statuses
from rival_client.model.kinds import LIMITED_WAITS
from rival_client.model.recovery import Recovery
from rival_client.model.timers import BACKOFF_MAX, NEVER_PUBLISHED

_BATCH = 500
#: Tables whose rows are published as messages.
_PUBLISHED = (runs, steps, events, tickets)


def recover(database: Database, on_batch: Callable[[int], None] | None = None) -> Recovery:
    """`on_batch` is called after each transaction with the number of rows so far."""
    republished = database.transact(_reset_all)
    marked = [""] * _BATCH
    while len(marked) >= _BATCH:
        if on_batch is not None:
            on_batch(len(republished))
        marked = database.transact(lambda connection: make_due(connection, BACKOFF_MAX, _BATCH))
        republished += marked
    with database.snapshot() as connection:
        return _counted(connection, republished)


def _reset_all(connection: Connection) -> list[str]:
    return [status for table in _PUBLISHED for status in _reset(connection, table)]


def make_due(connection: Connection, within: float, limit: int) -> list[str]:
    """Make up to `limit` rows due now whose look would come `within` seconds. Rows whose time has not come, and parked
    ones, are left alone. The status of each that was changed.
    """
    # As if no message had been published: any keeper that finds the rows publishes, whatever backlog there is.
    unpublished = {"ring_at": now(), "rings": NEVER_PUBLISHED}
    return [status for table in _PUBLISHED for status in _make_due(connection, table, within, limit, unpublished)]


def _make_due(connection: Connection, table: Table, within: float, limit: int, values: dict[str, Any]) -> Sequence[str]:
    key = table.primary_key.columns
    found = (
        select(*key)
        .where(table.c.ring_at > now(), table.c.ring_at <= after(within), _waits(table))
        .order_by(table.c.ring_at)
        .limit(limit)
        .with_for_update(skip_locked=True)
    )
    changed = update(table).where(tuple_(*key).in_(chosen(found))).values(values)
    return connection.scalars(changed.returning(_status(table))).all()


def _status(table: Table) -> Any:
    return literal(statuses.WAITING) if table is tickets else table.c.status


def chosen(rows: Select[Any]) -> Select[Any]:
    """The rows of a locking SELECT with a LIMIT, chosen once: as a mere subquery Postgres may run it again for every
    row of the UPDATE, and so choose more than the limit. A CTE that locks is never inlined.
    """
    return select(rows.cte("chosen"))


def _waits(table: Table) -> Any:
    """For a worker, and for nothing else."""
    if table is events:
        return table.c.status == "sent"
    if table is tickets:
        return and_(tickets.c.granted_at.is_not(None), or_(tickets.c.due_at.is_(None), tickets.c.due_at <= now()))
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


def _reset(connection: Connection, table: Table) -> Sequence[str]:
    """Resets rows that are due already, and all events. Returns the status of each."""
    key = table.primary_key.columns
    when = table.c.ring_at.is_not(None) if table is events else table.c.ring_at <= now()
    due = select(*key).where(when, _waits(table)).with_for_update(skip_locked=True)
    unpublished = {"rings": NEVER_PUBLISHED} | ({"ring_at": now()} if table is events else {})
    changed = update(table).where(tuple_(*key).in_(chosen(due))).values(unpublished).returning(_status(table))
    return connection.scalars(changed).all()


def _counted(connection: Connection, republished: Sequence[str]) -> Recovery:
    living = select(executors.c.id).where(executors.c.id == steps.c.executor_id, executors.c.expires_at > now())
    running = select(runs.c.id).where(in_status(statuses.RUNNING))
    in_flight = one_of(steps.c.run_id, running) & (steps.c.status == statuses.RUNNING)
    timers = (
        steps.c.status.in_((statuses.WAITING, statuses.WAITING_RETRY))
        & (steps.c.due_at > now())
        & steps.c.kind.not_in(LIMITED_WAITS)
    )
    return Recovery(
        republished=len(republished),
        resumed=sum(status == statuses.WAITING for status in republished),
        suspended=_count(connection, runs, in_status(statuses.SUSPENDED)),
        orphans=_count(connection, orphans),
        lost=_count(connection, steps, in_flight, ~living.exists()),
        # Every waiting row has a `ring_at`, so the partial index can serve the conditions.
        parked=sum(_count(connection, t, t.c.ring_at.is_not(None), t.c.parked.is_not(None)) for t in (runs, steps)),
        waiting_for_time=_count(connection, steps, steps.c.ring_at.is_not(None), timers),
        waiting_for_events=_count(connection, waits),
        live_executors=_count(connection, executors, executors.c.expires_at > now()),
    )


def _count(connection: Connection, table: Table, *conditions: Any) -> int:
    return int(connection.scalar(select(func.count()).select_from(table).where(*conditions)) or 0)
