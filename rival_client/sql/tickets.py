"""Tickets of steps and runs that end or change: which slots they have, and how they leave the queues of their gates."""

from __future__ import annotations

from collections.abc import Collection

from sqlalchemy import ColumnElement, Connection, and_, delete, select, update

from rival_client.db.guards import run_can, step_can
from rival_client.db.limit_tables import tickets
from rival_client.db.run_tables import runs, steps
from rival_client.db.types import now
from rival_client.model import history_entries as entries
from rival_client.model import statuses
from rival_client.model.timers import NEVER_PUBLISHED
from rival_client.sql.history import record
from rival_client.sql.wake import wake_run


def slots_of(connection: Connection, which: ColumnElement[bool]) -> list[int]:
    """The slots that these steps use. Their rows are locked; the caller clears the column, and gives the slots back."""
    its = select(steps.c.slots).where(which, steps.c.slots.is_not(None)).with_for_update()
    return [slot for slots in connection.scalars(its) for slot in slots]


def withdraw(connection: Connection, run_id: str, paths: Collection[str] | None = None) -> list[int]:
    """Delete tickets of a run: all of them, or those of some steps. Returns the slots that they had, and the gates of
    idempotency keys that were granted to them. The caller has locked the rows of the steps, and no gate."""
    found = connection.scalars(select(tickets.c.path).where(tickets.c.run_id == run_id))
    wanted = sorted(path for path in found if paths is None or path in paths)
    if not wanted:
        return []
    its_own = and_(tickets.c.run_id == run_id, tickets.c.path.in_(wanted))
    # Locked first: a ticket that is being granted at this moment has its slot then.
    columns = (tickets.c.slot, tickets.c.gate, tickets.c.granted_at)
    rows = connection.execute(select(*columns).where(its_own).order_by(tickets.c.path).with_for_update()).all()
    connection.execute(delete(tickets).where(its_own))
    return [row.gate if row.slot is None else row.slot for row in rows if row.granted_at is not None]


def unqueue(connection: Connection, run_id: str, by: str | None, why: str, path: str | None = None) -> list[int]:
    """The steps of a run (or one of them) that wait with a ticket are pending again, without it. Returns the slots that
    the tickets had. The caller has the exclusive lock of the run, or has locked the step."""
    which = tickets.c.run_id == run_id if path is None else and_(tickets.c.run_id == run_id, tickets.c.path == path)
    paths = list(connection.scalars(select(tickets.c.path).where(which)))
    if not paths:
        return []
    again = {"status": statuses.PENDING, "due_at": None, "ring_at": now(), "rings": NEVER_PUBLISHED}
    its_steps = (steps.c.run_id == run_id, steps.c.path.in_(paths), step_can("unqueue_step"))
    changed = connection.scalars(update(steps).where(*its_steps).values(again).returning(steps.c.path)).all()
    for one in sorted(changed):
        record(connection, run_id, one, entries.UNQUEUED, by=by, why=why)
    if changed:
        wake_run(connection, run_id)
    if "" in paths:
        pending = (runs.c.id == run_id, run_can("queue_run"))
        connection.execute(update(runs).where(*pending).values(ring_at=now(), rings=NEVER_PUBLISHED))
    return withdraw(connection, run_id, paths)
