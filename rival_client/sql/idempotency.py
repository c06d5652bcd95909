"""Idempotency keys: ends the ownership of a key, grants the tickets of steps that wait for it, drops keys.
Statements on an open connection; the caller commits, and then publishes the messages of the granted tickets.

**Lock order**: the row of a key is locked after all rows of runs and steps, and before any gate; then tickets of others
with SKIP LOCKED only. A step that begins to wait has locked the row of the key, and so has what ends its ownership: the
second one sees what the first has done. (An owner that has ended otherwise is found by the sweep of the keepers.)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, delete, select, update

from rival_client.db.idempotency_tables import keys
from rival_client.db.limit_tables import tickets
from rival_client.db.run_tables import runs, steps
from rival_client.db.types import after, clock, now
from rival_client.errors import NotPossible
from rival_client.model import history_entries as entries
from rival_client.model.limits.idempotency_records import KeyName
from rival_client.model.payload import Json
from rival_client.model.statuses import STEP_OPEN
from rival_client.sql.gates import grant_keyed
from rival_client.sql.grants import Grant
from rival_client.sql.history import record
from rival_client.sql.reads.idempotency_reads import WAITS, is_named
from rival_client.sql.recovery import chosen

#: Tickets that one transaction grants. Each step that uses a result grants two more.
AT_ONCE = 100
#: The columns of a key that no step owns.
_FREE: dict[str, Any] = {
    **dict.fromkeys(("run_id", "path", "holder", "fingerprint", "result", "completed_at")),
    "expires_at": now(),
}


def gate_of(key_id: int) -> int:
    """The gate of tickets that wait for the key."""
    return -key_id


def grant_waiting(connection: Connection, key_id: int, most: int, grace: float) -> list[Grant]:
    """Grant the first tickets that wait for the key. `grace`: as of `gates.leave`."""
    return grant_keyed(connection, gate_of(key_id), most, grace)


def end_ownership(
    connection: Connection, run_id: str, ended: Mapping[str, Json | None] | None, grace: float
) -> list[Grant]:
    """These steps of the run (None: all) have ended, each with the result that others can use, or without one: then the
    first step that waits becomes the owner of its key."""
    owned = select(keys.c.id, keys.c.path).where(keys.c.run_id == run_id, keys.c.expires_at.is_(None))
    found = connection.execute(owned.order_by(keys.c.id)).all()
    granted: list[Grant] = []
    for row in found:
        if ended is None or row.path in ended:
            granted += _end(connection, row.id, run_id, None if ended is None else ended[row.path], grace)
    return granted


def _end(connection: Connection, key_id: int, run_id: str, result: Json | None, grace: float) -> list[Grant]:
    values = _FREE
    if result is not None:
        values = {"result": result, "completed_at": now(), "expires_at": _after_ttl()}
    its_own = (keys.c.id == key_id, keys.c.run_id == run_id, keys.c.expires_at.is_(None))
    if connection.execute(update(keys).where(*its_own).values(values)).rowcount == 0:
        return []
    return grant_waiting(connection, key_id, 1 if result is None else AT_ONCE, grace)


def _after_ttl() -> Any:
    return after(keys.c.ttl)


def lock_key(connection: Connection, which: ColumnElement[bool]) -> Row[Any] | None:
    return connection.execute(
        select(keys, (keys.c.expires_at <= clock()).label("is_over")).where(which).with_for_update()
    ).first()


def is_owned(connection: Connection, key: Row[Any]) -> bool:
    """A step works on the key, whose row is locked. A statement of its own: it sees what was committed while the lock
    was waited for. An owner that has ended in any way, or was
    deleted, does not work on it."""
    if key.run_id is None or key.completed_at is not None:
        return False
    status = select(steps.c.status).where(steps.c.run_id == key.run_id, steps.c.path == key.holder)
    return connection.scalar(status) in STEP_OPEN


# -- the keepers ------------------------------------------------------------------------------------------


def sweep_key(connection: Connection, key_id: int, grace: float) -> list[Grant]:
    """Grant what waits for a key that no step works on."""
    row = lock_key(connection, keys.c.id == key_id)
    if row is not None and is_owned(connection, row):
        return []
    if row is None or row.completed_at is not None:
        return grant_waiting(connection, key_id, AT_ONCE, grace)
    connection.execute(update(keys).where(keys.c.id == key_id).values(_FREE))
    return grant_waiting(connection, key_id, 1, grace)


def delete_expired_keys(connection: Connection, limit: int) -> int:
    # Not with NOT EXISTS: Postgres would read all tickets for it.
    waited = select(tickets.c.gate).where(WAITS).limit(1).scalar_subquery()
    old = select(keys.c.id).where(keys.c.expires_at <= now(), waited.is_(None)).order_by(keys.c.expires_at).limit(limit)
    gone = delete(keys).where(keys.c.id.in_(chosen(old.with_for_update(skip_locked=True))))
    return connection.execute(gone).rowcount


# -- operators --------------------------------------------------------------------------------------------


def drop_key(connection: Connection, name: KeyName, by: str) -> list[Grant] | None:
    """The next step with the key is called. None: the key is unknown. NotPossible: a step works on it."""
    # A write first: on SQLite the transaction is a writer from the beginning.
    connection.execute(update(keys).where(is_named(name)).values(digest=name.digest))
    row = connection.execute(select(keys).where(is_named(name))).first()
    if row is None or row.run_id is None:
        return None
    if row.completed_at is None:
        why = f"its step {row.path!r} owns the key {name.key!r} and has not ended: cancel the run, or wait for its end"
        raise NotPossible("drop", row.run_id, why)
    connection.execute(update(keys).where(keys.c.id == row.id).values(_FREE))
    if connection.scalar(select(runs.c.id).where(runs.c.id == row.run_id)) is not None:
        record(connection, row.run_id, row.path, entries.KEY_DROPPED, by=by, key=name.key)
    return grant_waiting(connection, row.id, 1, grace=0)
