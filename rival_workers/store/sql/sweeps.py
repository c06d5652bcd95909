"""Work of the keeper on limits: granted tickets whose messages were lost, and gates with stale tickets or unused room.

While all transactions commit there is nothing to repair. A ticket that a transaction skipped, because another
transaction held its lock and then rolled back, waits until the sweep finds it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, and_, delete, func, literal, select, true, tuple_, update

from rival_client.db.limit_tables import gates, tickets
from rival_client.db.run_tables import runs, steps
from rival_client.db.types import after, now
from rival_client.model import statuses
from rival_client.model.kinds import STEP
from rival_client.sql.gates import leave, lock_gates, look_again
from rival_client.sql.grants import Grant
from rival_client.sql.idempotency import sweep_key
from rival_workers.store.sql.guards import backed_off, chosen
from rival_workers.store.sql.part import StorePart
from rival_workers.store.sweep_records import SweepOptions

#: Seconds without a start or end after which an unused gate is deleted.
IDLE = 3600.0
#: Number of tickets per gate that the sweep examines.
_HEAD = 100


def due_tickets(connection: Connection, options: SweepOptions) -> list[Row[Any]]:
    """Granted tickets whose message was probably lost, with the columns of due steps."""
    due = (
        select(tickets.c.run_id, tickets.c.path)
        .where(tickets.c.ring_at <= now())
        .order_by(tickets.c.ring_at)
        .limit(options.limit)
        .with_for_update(skip_locked=True)
    )
    rows = connection.execute(
        update(tickets)
        .where(tuple_(tickets.c.run_id, tickets.c.path).in_(chosen(due)))
        .values(ring_at=backed_off(tickets.c.rings, options), rings=tickets.c.rings + 1)
        .returning(
            tickets.c.run_id,
            func.nullif(tickets.c.path, "").label("path"),
            literal(statuses.WAITING).label("status"),
            tickets.c.token,
            literal(0).label("timeout"),
            tickets.c.attempt - 1,
            tickets.c.lost,
            tickets.c.rings - 1,
            tickets.c.workflow,
            tickets.c.version,
            literal(STEP).label("kind"),
            tickets.c.queue,
            tickets.c.level,
            tickets.c.due_at,
            literal(None).label("start_by"),
            literal(None).label("deadline_at"),
            now().label("now"),
            literal(False).label("expired"),
        )
    )
    return list(rows)


class SweepsSql(StorePart):
    def sweep_gates(self, limit: int) -> list[Grant]:
        """Examine the gates at which tickets wait: withdraw tickets whose step does not wait any more, and grant what
        there is room for. Returns the grants to publish."""
        with self.database.transaction() as connection:
            published_again = and_(tickets.c.ring_at.is_not(None), tickets.c.rings > 0)
            granted = _withdraw_stale(connection, published_again, tickets.c.ring_at, self.ring_grace)
        for gate_id in self._waited_for(limit):
            with self.database.transaction() as connection:
                waits_here = and_(tickets.c.gate == gate_id, tickets.c.granted_at.is_(None))
                granted += _withdraw_stale(connection, waits_here, tickets.c.rank, self.ring_grace)
            with self.database.transaction() as connection:
                granted += _look(connection, gate_id, self.ring_grace)
        self._delete_idle(limit)
        return granted

    def look_again(self, gates: Sequence[int]) -> tuple[Grant, ...]:
        """Grant what these gates have room for. Safe at any time. The caller publishes the grants."""
        granted: list[Grant] = []
        for gate_id in gates:
            with self.database.transaction() as connection:
                granted += _look(connection, gate_id, self.ring_grace)
        return tuple(granted)

    def _waited_for(self, limit: int) -> list[int]:
        """The gates at which tickets wait, each found with one index lookup; those of idempotency keys first."""
        found: list[int] = []
        with self.database.autocommit() as connection:
            while len(found) < limit:
                later = tickets.c.gate > found[-1] if found else true()
                first = select(func.min(tickets.c.gate)).where(later, tickets.c.granted_at.is_(None))
                gate_id = connection.scalar(first)
                if gate_id is None:
                    break
                found.append(gate_id)
        return found

    def _delete_idle(self, limit: int) -> None:
        # A granted ticket has a slot, so its gate counts as used. LIMIT 1 instead of NOT EXISTS, for which Postgres
        # would read all tickets.
        waits_here = (tickets.c.gate == gates.c.id, tickets.c.granted_at.is_(None))
        waited = select(tickets.c.gate).where(*waits_here).limit(1).scalar_subquery()
        idle = (
            select(gates.c.id)
            .where(gates.c.touched_at < after(-IDLE), gates.c.used == 0, waited.is_(None))
            .limit(limit)
            .with_for_update(skip_locked=True)
        )
        with self.database.transaction() as connection:
            connection.execute(delete(gates).where(gates.c.id.in_(chosen(idle)), gates.c.used == 0))


def _look(connection: Connection, gate_id: int, grace: float) -> list[Grant]:
    if gate_id < 0:
        return sweep_key(connection, -gate_id, grace)
    # Lock all shards of a key, in order: a ticket may wait at a full shard while another has room.
    its = select(gates.c.name, gates.c.key).where(gates.c.id == gate_id)
    locked = lock_gates(connection, tuple_(gates.c.name, gates.c.key).in_(its))
    return [grant for gate in locked for grant in look_again(connection, gate, grace)]


def _withdraw_stale(
    connection: Connection, which: ColumnElement[bool], order: ColumnElement[Any], grace: float
) -> list[Grant]:
    """Of the first tickets, withdraw those with which no step or run waits any more. Limited, because very many may
    wait."""
    head = connection.execute(select(tickets.c.run_id, tickets.c.path).where(which).order_by(order).limit(_HEAD)).all()
    if not head:
        return []
    # Scalar subqueries instead of NOT EXISTS, for which Postgres would read all steps and all tickets.
    waits = select(steps.c.path).where(
        steps.c.run_id == tickets.c.run_id,
        steps.c.path == tickets.c.path,
        steps.c.status == statuses.WAITING,
        steps.c.execution_token == tickets.c.token,
    )
    begins = select(runs.c.id).where(
        runs.c.id == tickets.c.run_id,
        tickets.c.path == "",
        runs.c.status == statuses.PENDING,
        runs.c.token == tickets.c.token,
    )
    moved_on = (waits.scalar_subquery().is_(None), begins.scalar_subquery().is_(None))
    stale = select(tickets.c.run_id, tickets.c.path).where(*_among(head), which, *moved_on)
    found = connection.execute(stale.with_for_update(skip_locked=True)).all()
    if not found:
        return []
    gone = connection.execute(delete(tickets).where(*_among(found)).returning(tickets.c.slot))
    slots = [row.slot for row in gone if row.slot is not None]
    return leave(connection, slots, grace)


def _among(found: Iterable[Any]) -> tuple[ColumnElement[bool], ...]:
    """The tickets of these rows, by their primary key."""
    named = [(row.run_id, row.path) for row in found]
    return tickets.c.run_id.in_({run_id for run_id, _ in named}), tuple_(tickets.c.run_id, tickets.c.path).in_(named)
