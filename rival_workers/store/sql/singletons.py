"""The singleton place and slot of a run that begins, or that an operator reopens.

The slot decides which run runs. The place is what other starts look for: a run that had to wait takes it when it
begins, also from a run that has not begun.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from sqlalchemy import Connection, Row, Select, func, select, update
from sqlalchemy.exc import DBAPIError

from rival_client.db.limit_tables import gates, tickets
from rival_client.db.run_tables import GOES_FIRST, NOT_BEGUN, SINGLETON_KEY, STARTED_AT, runs
from rival_client.db.types import now
from rival_client.errors import NotPossible
from rival_client.model.limits.limits import Limit
from rival_client.model.limits.singletons import goes_first, singleton_limit, singleton_of
from rival_client.model.statuses import RUN_TERMINAL
from rival_client.sql.gates import lock_gates
from rival_client.sql.limit_rows import make_gates
from rival_client.sql.recovery import chosen
from rival_workers.store.sql.applicants import Applicant
from rival_workers.store.sql.guards import may_begin_now
from rival_workers.store.sql.locks import change_locked

#: The transaction of a producer may hold the place; a worker does not wait for its end.
_PATIENCE = "20ms"
#: What `applicant_of` reads.
APPLICANT = tuple(
    runs.c[name]
    for name in (
        "id",
        "token",
        "workflow",
        "version",
        "queue",
        "priority",
        "policies",
        "created_at",
        "due_at",
        "singleton",
    )
)
#: SQLSTATEs of a unique violation and of a lock timeout.
_TAKEN, _LOCKED = "23505", "55P03"
#: A start may take the place at the same moment; the second time, its run is found.
_TRIES = 2


def take_place(connection: Connection, run: Row[Any]) -> None:
    """Take the singleton place for a run that begins. A run that has not begun leaves it: other starts must find the
    one that runs. If another run has the place even so, the run continues without it."""
    key = singleton_of(run.policies)
    if key is None or run.singleton is not None:
        return
    if connection.dialect.name != "postgresql":
        _take(connection, run, key)
        return
    before = connection.scalar(select(func.current_setting("lock_timeout")))
    for _ in range(_TRIES):
        try:
            with connection.begin_nested():
                connection.execute(select(func.set_config("lock_timeout", _PATIENCE, True)))
                _take(connection, run, key)
                connection.execute(select(func.set_config("lock_timeout", before, True)))
            return
        except DBAPIError as error:
            sqlstate = getattr(error.orig, "sqlstate", None)
            if sqlstate == _LOCKED:
                return
            if sqlstate != _TAKEN:
                raise


def _take(connection: Connection, run: Row[Any], key: str) -> None:
    # With a try-lock: gates are locked. `run_before` has locked the row already, if it was there.
    other = _waiting_with_place(run, key).with_for_update(key_share=True, skip_locked=True)
    connection.execute(update(runs).where(runs.c.id.in_(chosen(other)), NOT_BEGUN).values(singleton=None))
    holder: Any = runs.alias("holder")
    has_place = (holder.c.workflow == run.workflow, holder.c.singleton == key, holder.c.completed_at.is_(None))
    is_free = ~select(holder.c.id).where(*has_place).exists()
    takes = update(runs).where(runs.c.id == run.id, runs.c.singleton.is_(None), is_free)
    connection.execute(takes.values(singleton=key))


def _waiting_with_place(run: Row[Any], key: str) -> Select[tuple[str]]:
    """The other run that has the place of the key and has not begun."""
    is_it = (runs.c.workflow == run.workflow, runs.c.singleton == key, runs.c.completed_at.is_(None), NOT_BEGUN)
    return select(runs.c.id).where(*is_it, runs.c.id != run.id)


class RunBefore(NamedTuple):
    """A run with the same key that was started before, and has not begun. `applicant`: None if another transaction has
    locked its row; that one starts the run, or ends it."""

    #: The name of the gate at which others wait for it.
    slot: str
    run_id: str
    applicant: Applicant | None


def slot_name(run: Row[Any]) -> str | None:
    """The name of the gate of its key."""
    key = singleton_of(run.policies)
    return None if key is None else singleton_limit(run.workflow, key).gate_name


def run_before(connection: Connection, run: Row[Any]) -> RunBefore | None:
    """The first run that must begin before this one, which is locked: the one that has cancelled another and has its
    place, then in the order of the starts, however their messages arrive. Runs that are paused or not due yet do not
    keep others waiting."""
    key = singleton_of(run.policies)
    if key is None:
        return None
    if run.singleton is None:
        # It would take the place from a run that waits. That row is locked now, before any gate: the transaction of a
        # run that has the place waits for no other run.
        connection.execute(_waiting_with_place(run, key).with_for_update(key_share=True))
    same_key: tuple[Any, ...] = (runs.c.workflow == run.workflow, key == SINGLETON_KEY, NOT_BEGUN)
    can_begin: tuple[Any, ...] = (*same_key, runs.c.paused_at.is_(None), may_begin_now())
    by_cancel = select(runs.c.id).where(*can_begin, runs.c.singleton == key, runs.c.completed_at.is_(None), GOES_FIRST)
    in_order = select(runs.c.id).where(*can_begin).order_by(STARTED_AT, runs.c.created_at, runs.c.id).limit(1)
    first = connection.scalar(select(func.coalesce(by_cancel.scalar_subquery(), in_order.scalar_subquery())))
    if first is None or first == run.id:
        return None
    # With a try-lock: each transaction here has locked its own run already.
    wanted = select(*APPLICANT).where(runs.c.id == first, *can_begin).with_for_update(key_share=True, skip_locked=True)
    row = connection.execute(wanted).first()
    slot = singleton_limit(run.workflow, key).gate_name
    return RunBefore(slot, first, None if row is None else applicant_of(row, row.token))


def applicant_of(run: Row[Any], token: int) -> Applicant:
    """A run that asks to begin. `token`: the one that it has while it waits."""
    route = {"level": run.priority or 0, "queue": run.queue}
    since = None if singleton_of(run.policies) is None else run.due_at or run.created_at
    first = run.singleton is not None and goes_first(run.policies)
    return Applicant(run.id, "", token, run.workflow, run.version, **route, since=since, goes_first=first)


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
