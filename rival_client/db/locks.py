"""The locks of a transaction, and the one order in which it takes them. No deadlock is possible while all keep to it:

1. Topics, sorted by topic and key; the rows of their events belong to them (`rival_workers.store.sql.locks`).
2. The lock of the run. Shared: for a transition that follows one step up to its run. Exclusive: for a change of
   several branches at once, by an operator or by a failure that stops what runs beside it. The holder of the exclusive
   lock takes the row of the run next, and then any rows of its steps. It locks the rows that it decides from: a fast
   claim changes one row, without the lock of the run.
3. With the shared lock: rows of steps from the leaf up (descending paths), then the row of the run.
4. The parent of a run that ends: its shared lock, then the rows as in 3. Never from a parent to its children: those
   that a parent leaves behind are rows of `rival_orphans`, and each is cancelled in a transaction of its own.
5. Rows of `rival_orphans`.
6. Idempotency keys, then the tickets of the run, then gates of limits (see `rival_client.sql.gates`).

A transaction that locks a single row, or takes rows with SKIP LOCKED only, cannot be part of a deadlock and needs none
of it. One that finds out late that it needs a lock of an earlier kind starts again with that lock.

The lock of a run is an advisory lock, since a shared lock on the row of the run would be a write to it for each step.
On SQLite a transaction is alone anyway.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import ARRAY, ColumnElement, Connection, Text, cast, func, select, true

from rival_client.db.log_tables import history
from rival_client.db.run_tables import runs
from rival_client.errors import RunHasMoved, RunNotFound

#: An arbitrary number that only the locks of runs use.
RUN_LOCK = 726_356
#: The shared lock within a statement: a condition that is checked before any row is locked.
SHARED_RUN_LOCK_SQL = (
    f"(SELECT pg_advisory_xact_lock_shared(hashtextextended(%(run_id)s::text, {RUN_LOCK})) IS NOT NULL)"
)


def share_run(connection: Connection, run_id: str) -> None:
    """Take the shared lock of the run: for a transition from one step up."""
    if connection.dialect.name == "postgresql":
        connection.execute(select(func.pg_advisory_xact_lock_shared(_key(run_id))))


def shares_run(connection: Connection, run_id: str) -> ColumnElement[bool]:
    """The same as a condition of a statement: it is checked before the statement locks a row."""
    if connection.dialect.name != "postgresql":
        return true()
    return select(func.pg_advisory_xact_lock_shared(_key(run_id))).scalar_subquery().is_not(None)


_OF_RUN = (
    *("id", "workflow", "version", "status", "token", "completed_at", "slots"),
    *("queue", "priority", "policies", "labels"),
)


def lock_run(connection: Connection, run_id: str, if_entry: int | None = None) -> Any:
    """Take the exclusive lock of the run, and its row: for a change of any of its steps. `if_entry`: RunHasMoved unless
    this is the newest entry of its history. No transition of the run is under way then, so none can come in between.
    """
    if connection.dialect.name == "postgresql":
        connection.execute(select(func.pg_advisory_xact_lock(_key(run_id))))
    columns = [runs.c[name] for name in _OF_RUN]
    row = connection.execute(select(*columns).where(runs.c.id == run_id).with_for_update()).first()
    if row is None:
        raise RunNotFound(run_id)
    if if_entry is not None and newest_entry(connection, run_id) != if_entry:
        raise RunHasMoved(run_id, if_entry)
    return row


def newest_entry(connection: Connection, run_id: str) -> int:
    """Changes with each transition of the run; 0 without a history."""
    return connection.scalar(select(func.max(history.c.id)).where(history.c.run_id == run_id)) or 0


def try_lock_runs(connection: Connection, run_ids: Sequence[str]) -> list[str]:
    """Try-lock: take the exclusive locks of those runs that no other transaction has locked, and return these runs."""
    if connection.dialect.name != "postgresql":
        return list(run_ids)
    run_id = func.unnest(cast(list(run_ids), ARRAY(Text))).column_valued("run_id")
    return list(connection.scalars(select(run_id).where(func.pg_try_advisory_xact_lock(_key(run_id)))))


def _key(run_id: Any) -> Any:
    return func.hashtextextended(run_id, RUN_LOCK)
