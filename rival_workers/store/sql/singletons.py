"""The singleton place and slot of a run that begins, or that an operator reopens.

The slot decides which run runs. The place is what other starts look for: a run that had to wait takes it when it
begins, if it is free.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection, func, select, update
from sqlalchemy.exc import DBAPIError

from rival_client.db.limit_tables import gates, tickets
from rival_client.db.run_tables import runs
from rival_client.db.types import now
from rival_client.errors import NotPossible
from rival_client.model.limits.limits import Limit
from rival_client.model.limits.singletons import singleton_limit, singleton_of
from rival_client.model.statuses import RUN_TERMINAL
from rival_client.sql.gates import lock_gates
from rival_client.sql.limit_rows import make_gates
from rival_workers.store.sql.locks import change_locked

#: The transaction of a producer may hold the place; a worker does not wait for its end.
_PATIENCE = "20ms"
#: SQLSTATEs of a unique violation and of a lock timeout.
_TAKEN = ("23505", "55P03")


def take_place(connection: Connection, run_id: str, workflow: str, policies: Mapping[str, Any] | None) -> None:
    """Take the singleton place for a run that begins. If another run has the place, the run continues without it."""
    key = singleton_of(policies)
    if key is None:
        return
    other: Any = runs.alias("other")
    has_place = (other.c.workflow == workflow, other.c.singleton == key, other.c.completed_at.is_(None))
    is_free = ~select(other.c.id).where(*has_place).exists()
    takes = update(runs).where(runs.c.id == run_id, runs.c.singleton.is_(None), is_free).values(singleton=key)
    if connection.dialect.name != "postgresql":
        connection.execute(takes)
        return
    before = connection.scalar(select(func.current_setting("lock_timeout")))
    try:
        with connection.begin_nested():
            connection.execute(select(func.set_config("lock_timeout", _PATIENCE, True)))
            connection.execute(takes)
            connection.execute(select(func.set_config("lock_timeout", before, True)))
    except DBAPIError as error:
        if getattr(error.orig, "sqlstate", None) not in _TAKEN:
            raise


def retake_slot(connection: Connection, run_id: str, verb: str) -> None:
    """Take the slot again for a reopened, locked run. Raises NotPossible if another run with its key runs or waits to
    run. This is the last lock of the transaction."""
    run = connection.execute(select(runs).where(runs.c.id == run_id)).one()
    key = singleton_of(run.policies)
    if key is None or run.status in RUN_TERMINAL:
        return
    limit = singleton_limit(run.workflow, key)
    of_key = (gates.c.name == limit.gate_name, gates.c.key == key)
    if connection.scalar(select(gates.c.id).where(*of_key)) in (run.slots or ()):
        return
    make_gates(connection, limit, key)
    [gate] = lock_gates(connection, of_key[0] & of_key[1])
    waiting = connection.scalar(select(tickets.c.run_id).where(tickets.c.gate == gate.id).limit(1))
    if gate.used >= gate.max or waiting is not None:
        raise NotPossible(verb, run_id, _why_not(limit, key, waiting))
    connection.execute(update(gates).where(gates.c.id == gate.id).values(used=gate.used + 1, touched_at=now()))
    holds = update(runs).where(runs.c.id == run_id, runs.c.token == run.token, runs.c.completed_at.is_(None))
    change_locked(connection, holds.values(slots=[*(run.slots or ()), gate.id]), f"run {run_id!r}")


def _why_not(limit: Limit, key: str, waiting: str | None) -> str:
    other = "another run" if waiting is None else f"run {waiting!r}"
    does = "runs" if waiting is None else "waits to begin"
    return (
        f"{other} with its singleton key {key!r} {does}: wait for its end, or cancel it "
        f"(`rival limit show '{limit.gate_name}' --key '{key}'` lists what runs and waits)"
    )
