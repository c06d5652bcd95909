"""Parts of a run: conditions for a composite with everything below it, and cancelling what is open of them."""

from __future__ import annotations

from sqlalchemy import ColumnElement, Connection, Table, and_, delete, or_, select, update

from rival_client.db.event_tables import waits
from rival_client.db.guards import step_can
from rival_client.db.run_tables import steps
from rival_client.db.types import now
from rival_client.model import statuses
from rival_client.sql.tickets import slots_of, withdraw


def begins(begin: str, table: Table = steps) -> ColumnElement[bool]:
    """Paths that begin like this, as a range that the primary key can serve."""
    return and_(table.c.path >= begin, table.c.path < begin[:-1] + chr(ord(begin[-1]) + 1))


def below(path: str, table: Table = steps) -> ColumnElement[bool]:
    """A composite and all that belongs to it."""
    return or_(table.c.path == path, *(begins(path + sign, table) for sign in "/[!"))


def cancel_below(connection: Connection, run_id: str, which: ColumnElement[bool]) -> tuple[list[str], list[int]]:
    """Cancel the open steps among these, and delete their waits and tickets. Returns the paths, sorted, and the slots
    of limits that they have used."""
    ended = {"status": statuses.CANCELLED, "completed_at": now(), "ring_at": None, "timeout_at": None, "slots": None}
    tokens = {name: steps.c[name] + 1 for name in ("execution_token", "timeout_token")}
    is_open = and_(steps.c.run_id == run_id, which, step_can("cancel_below"))
    slots = slots_of(connection, is_open)
    cancel = update(steps).where(is_open)
    cancelled = sorted(connection.scalars(cancel.values(**ended, **tokens).returning(steps.c.path)))
    if cancelled:
        waiting = connection.scalars(select(waits.c.path).where(waits.c.run_id == run_id))
        if gone := [path for path in waiting if path in set(cancelled)]:
            connection.execute(delete(waits).where(waits.c.run_id == run_id, waits.c.path.in_(gone)))
        slots += withdraw(connection, run_id, cancelled)
    return cancelled, slots
