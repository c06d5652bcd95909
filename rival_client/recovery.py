"""Recovery by hand: all that waits for a worker is made due at once, and what there is to recover is counted. The
workers' keepers do the rest, as they always do; so it is safe at any time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Select, Table, and_, func, or_, select, tuple_, update

from rival_client.database import Database
from rival_client.tables import after, events, executors, now, runs, steps, waits

#: Seconds after which a row that waits for a worker is looked at again at the latest.
_LONGEST_BACKOFF = 600.0
_BATCH = 500
#: `rings` of a row for which nobody has rung.
_NEVER_RUNG = -1


@dataclass(frozen=True)
class Recovery:
    """What `recover` has found and done."""

    #: Runs, steps and events that wait for a worker: keepers ring for all of them at once, whatever was rung before.
    rung: int
    #: Attempts whose executor is dead: a live worker takes them over within a lease.
    lost: int
    #: Runs and steps that no worker had the code for. They are looked at again from time to time, as before.
    parked: int
    #: Steps that wait for their time: delays, and retries.
    waiting_for_time: int
    #: Steps that wait for an event.
    waiting_for_events: int
    #: Processes that run attempts. None: nothing happens until a worker is started.
    live_executors: int


def recover(database: Database) -> Recovery:
    with database.transaction() as connection:
        rung = sum(_forget_rings(connection, table) for table in (runs, steps, events))
    marked = _BATCH
    while marked >= _BATCH:
        with database.transaction() as connection:
            marked = make_due(connection, _LONGEST_BACKOFF, _BATCH)
        rung += marked
    with database.snapshot() as connection:
        return _counted(connection, rung)


def make_due(connection: Connection, within: float, limit: int) -> int:
    """Make up to `limit` rows due now whose look would come `within` seconds. Rows whose time has not come, and parked
    ones, are left alone. How many were changed.
    """
    # As if nobody had ever rung: any keeper that finds them rings, whatever backlog the others' rings have made.
    forgotten = {"ring_at": now(), "rings": _NEVER_RUNG}
    of_runs, of_steps = (
        select(*table.primary_key.columns)
        .where(table.c.ring_at > now(), table.c.ring_at <= after(within), _waits(table))
        .limit(limit)
        .with_for_update(skip_locked=True)
        for table in (runs, steps)
    )
    found_runs = connection.execute(
        update(runs).where(runs.c.id.in_(chosen(of_runs))).values(forgotten).returning(runs.c.id)
    ).all()
    found_steps = connection.execute(
        update(steps)
        .where(tuple_(steps.c.run_id, steps.c.path).in_(chosen(of_steps)))
        .values(forgotten)
        .returning(steps.c.run_id)
    ).all()
    return len(found_runs) + len(found_steps)


def chosen(rows: Select[Any]) -> Select[Any]:
    """The rows of a locking SELECT with a LIMIT, chosen once: as a mere subquery Postgres may run it again for every
    row of the UPDATE, and so choose more than the limit. A CTE that locks is never inlined.
    """
    return select(rows.cte("chosen"))


def _waits(table: Table) -> Any:
    """For a worker, and for nothing else."""
    if table is events:
        return table.c.status == "sent"
    if table is runs:
        return and_(runs.c.status == "pending", runs.c.parked.is_(None))
    return and_(
        steps.c.parked.is_(None),
        steps.c.status.in_(("pending", "waiting_retry")),
        or_(steps.c.due_at.is_(None), steps.c.due_at <= now()),
    )


def _forget_rings(connection: Connection, table: Table) -> int:
    """Of what is due already; of events, all."""
    key = table.primary_key.columns
    when = table.c.ring_at.is_not(None) if table is events else table.c.ring_at <= now()
    due = select(*key).where(when, _waits(table)).with_for_update(skip_locked=True)
    forgotten = {"rings": _NEVER_RUNG} | ({"ring_at": now()} if table is events else {})
    changed = update(table).where(tuple_(*key).in_(chosen(due))).values(forgotten).returning(*key)
    return len(connection.execute(changed).all())


def _counted(connection: Connection, rung: int) -> Recovery:
    living = select(executors.c.id).where(executors.c.id == steps.c.executor_id, executors.c.expires_at > now())
    in_flight = steps.c.run_id.in_(select(runs.c.id).where(runs.c.status == "running")) & (steps.c.status == "running")
    timers = (
        steps.c.status.in_(("waiting", "waiting_retry"))
        & (steps.c.due_at > now())
        & steps.c.kind.not_in(("wait", "external"))
    )
    return Recovery(
        rung=rung,
        lost=_count(connection, steps, in_flight, ~living.exists()),
        # Whatever waits has a time to be looked at again: that makes it the partial index's work.
        parked=sum(_count(connection, t, t.c.ring_at.is_not(None), t.c.parked.is_not(None)) for t in (runs, steps)),
        waiting_for_time=_count(connection, steps, steps.c.ring_at.is_not(None), timers),
        waiting_for_events=_count(connection, waits),
        live_executors=_count(connection, executors, executors.c.expires_at > now()),
    )


def _count(connection: Connection, table: Table, *conditions: Any) -> int:
    return int(connection.scalar(select(func.count()).select_from(table).where(*conditions)) or 0)
