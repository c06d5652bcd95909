"""Gates: gives slots to tickets, and takes them back. Statements on an open connection; the caller commits, and then
publishes the messages of the granted tickets.

A slot is in use while the row of a running step (or of a run) names its gate, or while a granted ticket has it. What
ends that gives the slot to the next ticket in the same transaction (`leave`), or lowers the count of the gate.

**Lock order** (see `rival_client.db.locks`): after all rows of runs and steps, the tickets of the own run, then gates
by ascending id, then tickets of others with SKIP LOCKED only. No row of a run or a step is waited for after a gate. On
Postgres, what starts the step that gets the slot takes the rows of its run with try-locks, and what commits for many
runs takes gates with SKIP LOCKED.

**No waiting ticket is overlooked**: a ticket is entered by a transaction that has locked its gate, and a slot is freed
by one that has locked it, too. Whichever is second sees what the first has done. (A ticket that is locked by a
transaction which is then rolled back is skipped: the sweep of the keepers finds it.) The fast paths of Postgres
(`limits.sql`) lock less: a slot that goes to a ticket leaves its gate alone.
"""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Connection, select, tuple_, update

from rival_client.db.limit_tables import gates, tickets
from rival_client.db.types import after, clock, now
from rival_client.model.timers import NEVER_PUBLISHED
from rival_client.sql.grants import SAID, Grant, as_grant
from rival_client.sql.recovery import chosen

#: Seconds after its time at which the ticket of a rate is published again: others of the rate wait behind it.
RATE_GRACE = 0.5


@dataclass
class Gate:
    """The row of a gate that is locked, as it is and as this transaction leaves it."""

    id: int
    name: str
    key: str
    shard: int
    shards: int
    max: int
    used: int
    gap: float | None
    slack: float | None
    next_start: float

    @property
    def is_rate(self) -> bool:
        return self.gap is not None


_COLUMNS = tuple(gates.c[name] for name in Gate.__dataclass_fields__)


def lock_gates(connection: Connection, which: ColumnElement[bool]) -> list[Gate]:
    """By ascending id, all at once: a transaction locks gates with one call."""
    found = connection.execute(select(*_COLUMNS).where(which).order_by(gates.c.id).with_for_update())
    return [Gate(*row) for row in found]


def leave(connection: Connection, slots: Iterable[int], grace: float) -> list[Grant]:
    """Give slots back: each goes to the next ticket, if there is one. `grace`: seconds after which the keeper publishes
    the granted tickets; 0: at once, since the caller does not."""
    given = Counter(slots)
    if not given:
        return []
    locked = lock_gates(connection, gates.c.id.in_(sorted(given)))
    granted = [grant for gate in locked for grant in leave_unstarted(connection, gate, given[gate.id], grace)]
    return granted + [one for gate in given if gate < 0 for one in grant_keyed(connection, gate, given[gate], grace)]


def grant_keyed(connection: Connection, gate_id: int, most: int, grace: float) -> list[Grant]:
    """Grant the first tickets that wait for an idempotency key (see `rival_client.sql.idempotency`). They have no slot:
    they ask for the key when they have started."""
    first = (
        select(tickets.c.run_id, tickets.c.path)
        .where(tickets.c.gate == gate_id, tickets.c.granted_at.is_(None))
        .order_by(tickets.c.rank, tickets.c.run_id, tickets.c.path)
        .limit(most)
        .with_for_update(skip_locked=True)
    )
    rows = connection.execute(
        update(tickets)
        .where(tuple_(tickets.c.run_id, tickets.c.path).in_(chosen(first)))
        .values(granted_at=now(), ring_at=after(grace), rings=NEVER_PUBLISHED if grace == 0 else 0)
        .returning(*SAID)
    )
    return [as_grant(row) for row in rows]


def leave_locked(connection: Connection, gate: Gate, slots: int, grace: float) -> list[Grant]:
    """The same for slots of a gate that is locked. A limit that was lowered drains: nothing is granted then."""
    used = gate.used
    gate.used -= slots
    granted = _grant_all(connection, gate, grace)
    count_slots(connection, gate, used)
    return granted


def leave_unstarted(connection: Connection, gate: Gate, slots: int, grace: float) -> list[Grant]:
    """The same where nothing has started: what a rate has called after it may start sooner."""
    is_paced = gate.is_rate and gate.max > 0
    sooner = call_again(connection, gate, grace, most=gate.used - slots) if is_paced else []
    return sooner + leave_locked(connection, gate, slots, grace)


def call_again(connection: Connection, gate: Gate, grace: float, most: int) -> list[Grant]:
    """Give the granted tickets of a rate that have not started the times that are free now: its pace has changed, or
    one of them has left. `ring_at` is set of granted tickets only, and few of these exist."""
    called = (
        select(tickets.c.run_id, tickets.c.path)
        .where(tickets.c.slot == gate.id, tickets.c.ring_at.is_not(None), tickets.c.due_at > clock())
        .order_by(tickets.c.due_at, tickets.c.rank, tickets.c.run_id, tickets.c.path)
        .limit(max(0, most))
        .with_for_update(skip_locked=True)
    )
    rows = connection.execute(called).all()
    in_front = max(0, most) - len(rows)
    return [_grant(connection, gate, row, grace, in_front + place) for place, row in enumerate(rows)]


def look_again(connection: Connection, gate: Gate, grace: float) -> list[Grant]:
    """Grant what the room of a locked gate allows. Safe at any time."""
    return leave_locked(connection, gate, 0, grace)


def grant_run(connection: Connection, gate: Gate, run_id: str, grace: float) -> list[Grant]:
    """Give a free slot of a locked gate to the ticket of this run, whatever waits in front of it."""
    if gate.used >= gate.max:
        return []
    its_own = (tickets.c.run_id == run_id, tickets.c.path == "", tickets.c.gate == gate.id)
    waits = select(tickets.c.run_id, tickets.c.path).where(*its_own, tickets.c.granted_at.is_(None))
    row = connection.execute(waits.with_for_update(skip_locked=True)).first()
    if row is None:
        return []
    gate.used += 1
    return [_grant(connection, gate, row, grace, 0)]


def _grant_all(connection: Connection, gate: Gate, grace: float) -> list[Grant]:
    granted: list[Grant] = []
    while gate.used < gate.max and (one := _grant_next(connection, gate, grace)) is not None:
        granted.append(one)
        gate.used += 1
    return granted


def count_slots(connection: Connection, gate: Gate, before: int) -> None:
    """The row is not written if the slots have only changed hands."""
    if gate.used != before:
        connection.execute(update(gates).where(gates.c.id == gate.id).values(used=gate.used, touched_at=now()))


def _grant_next(connection: Connection, gate: Gate, grace: float) -> Grant | None:
    """Give a slot of the gate to the first ticket that waits at it, or at one of its shards."""
    for gate_id in _own_and_siblings(connection, gate):
        first = (
            select(tickets.c.run_id, tickets.c.path)
            .where(tickets.c.gate == gate_id, tickets.c.granted_at.is_(None))
            .order_by(tickets.c.rank, tickets.c.run_id, tickets.c.path)
            .limit(1)
            .with_for_update(skip_locked=True)
        )
        row = connection.execute(first).first()
        if row is not None:
            return _grant(connection, gate, row, grace, gate.used)
    return None


def _own_and_siblings(connection: Connection, gate: Gate) -> Iterable[int]:
    yield gate.id
    if gate.shards > 1:
        others = select(gates.c.id, gates.c.shard).where(
            gates.c.name == gate.name, gates.c.key == gate.key, gates.c.id != gate.id
        )
        # The next ones first, so that no shard is always asked last.
        found = connection.execute(others).all()
        yield from (one.id for one in sorted(found, key=lambda one: (one.shard <= gate.shard, one.shard)))


def _grant(connection: Connection, gate: Gate, ticket: Any, grace: float, place: int) -> Grant:
    """`place`, of a rate: how many that are granted and have not started are before it."""
    wait = 0.0 if gate.gap is None else time_left(connection, gate, after=place)
    look = wait + (grace if gate.gap is None or grace == 0 else RATE_GRACE)
    row = connection.execute(
        update(tickets)
        .where(tickets.c.run_id == ticket.run_id, tickets.c.path == ticket.path)
        .values(
            granted_at=now(),
            slot=gate.id,
            due_at=after(wait) if wait > 0 else None,
            ring_at=after(look),
            rings=NEVER_PUBLISHED if grace == 0 else 0,
        )
        .returning(*SAID)
    ).one()
    return as_grant(row, wait)


def time_left(connection: Connection, gate: Gate, after: int = 0) -> float:
    """Seconds until a rate allows the next start, or the one after so many others."""
    at: dt.datetime = connection.scalars(select(clock())).one()
    return max(0.0, gate.next_start - (gate.slack or 0.0) - at.timestamp() + after * (gate.gap or 0.0))
