"""Decides whether a step or a run may start under its limits: it takes a slot at each gate, or a ticket at one of them.

All or nothing: a step that waits at one gate holds no slot of another. New applicants never overtake waiting tickets.
The lock order is that of `rival_client.sql.gates`: the caller has locked the rows of the step and the run.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sequence
from typing import TypeVar

from sqlalchemy import Connection, delete, func, literal, or_, select, tuple_, update

from rival_client.db.database import Database
from rival_client.db.limit_tables import gates, limits, tickets
from rival_client.db.types import clock, now
from rival_client.model.limits.limit_shards import why_full
from rival_client.model.limits.limits import fair_base, rank_of
from rival_client.model.limits.singletons import is_singleton
from rival_client.sql.gates import (
    Gate,
    count_slots,
    grant_run,
    leave_locked,
    leave_unstarted,
    lock_gates,
    look_again,
    time_left,
)
from rival_client.sql.grants import Grant
from rival_client.sql.limit_rows import dialect_of, make_gates
from rival_workers.store.sql.applicants import Admitted, Applicant, Early, Full, Wanted

T = TypeVar("T")


class GatesMissing(Exception):
    """These gates do not exist yet; they are inserted in a transaction of their own, and the caller tries again."""

    def __init__(self, wanted: Sequence[Wanted]) -> None:
        super().__init__([one.of_key for one in wanted])
        self.wanted = wanted


class ShardsNeeded(Exception):
    """The applicant's own shard is full: the caller must lock all shards, in order, and try again."""


def with_gates(database: Database, once: Callable[[bool], T], fast: Callable[[], T | None] = lambda: None) -> T:
    """Repeat a transaction that raised GatesMissing or ShardsNeeded, with the gates inserted or all shards locked.
    `fast`: tried first when gates were inserted, since others that missed them wait for the same rows; None: not
    possible."""
    all_shards = False
    while True:
        try:
            return once(all_shards)
        except GatesMissing as missing:
            with database.transaction() as connection:
                for one in sorted(missing.wanted, key=lambda one: one.of_key):
                    make_gates(connection, one.limit, one.key)
            if (done := fast()) is not None:
                return done
        except ShardsNeeded:
            all_shards = True


class Admission:
    """One application to start, in one transaction."""

    def __init__(
        self, connection: Connection, applicant: Applicant, wanted: Sequence[Wanted], grace: float, all_shards: bool
    ) -> None:
        self._connection, self._applicant, self._grace = connection, applicant, grace
        self._wanted, self._all_shards = wanted, all_shards
        #: The gate of the applicant's singleton key, if no run is before it there: it passes the tickets that wait.
        self.passes_at: str | None = None
        its_own = (tickets.c.run_id == applicant.run_id, tickets.c.path == applicant.path)
        self._its_own = its_own
        #: Its ticket, if it waited before.
        self.ticket = connection.execute(
            select(tickets, clock().label("now")).where(*its_own).with_for_update()
        ).first()

    @property
    def is_waiting(self) -> bool:
        """True if it has a ticket that is not granted: then no message may start it."""
        return self.ticket is not None and self.ticket.granted_at is None

    def decide(self) -> Admitted | Full | Early:
        self._lock()
        chosen = [(one, self._gate_for(one)) for one in self._wanted]
        for one, gate in sorted(chosen, key=lambda pair: pair[1].id if pair[1] else 0):
            if gate is None:
                return self._full(one)
        seconds = max((self._time_left(gate) for _, gate in chosen if gate), default=0.0)
        if seconds > 0:
            return Early(seconds)
        return self._admitted([gate for _, gate in chosen if gate])

    # -- looking at the gates -----------------------------------------------------------------------------

    @property
    def _held(self) -> int | None:
        return None if self.ticket is None else self.ticket.slot

    def _lock(self) -> None:
        places = [place for one in self._wanted for place in one.places(self._all_shards)]
        wanted = tuple_(gates.c.name, gates.c.key, gates.c.shard).in_(places)
        locked = lock_gates(self._connection, or_(wanted, gates.c.id == self._held))
        self._gates = {(gate.name, gate.key, gate.shard): gate for gate in locked}
        self._by_id = {gate.id: gate for gate in locked}
        if missing := [one for one in self._wanted if any(p not in self._gates for p in one.places(self._all_shards))]:
            raise GatesMissing(missing)
        self._queues = self._with_queues()

    def _with_queues(self) -> set[int]:
        """The locked gates at which tickets wait. A separate statement, so that it sees what was committed while this
        transaction waited for the locks."""
        waiting = select(literal(1)).where(tickets.c.gate == gates.c.id, tickets.c.granted_at.is_(None))
        return set(self._connection.scalars(select(gates.c.id).where(gates.c.id.in_(self._by_id), waiting.exists())))

    def _gate_for(self, wanted: Wanted) -> Gate | None:
        """A gate of the key with room for the applicant. None: it must wait."""
        its_gates = [self._gates[place] for place in wanted.places(self._all_shards)]
        held = self._by_id.get(self._held or 0)
        if held is not None and (held.name, held.key) == wanted.of_key:
            return held
        if wanted.limit.gate_name == self.passes_at or not any(gate.id in self._queues for gate in its_gates):
            home = sorted(its_gates, key=lambda gate: (gate.shard < wanted.shard, gate.shard))
            found = next((gate for gate in home if self._has_room(gate)), None)
            if found is not None:
                return found
        if wanted.limit.shards > 1 and not self._all_shards:
            raise ShardsNeeded
        return None

    def _has_room(self, gate: Gate) -> bool:
        if not gate.is_rate:
            return gate.used < gate.max
        return gate.used == 0 and time_left(self._connection, gate) <= 0

    def _time_left(self, gate: Gate) -> float:
        return time_left(self._connection, gate) if gate.is_rate else 0.0

    # -- starting -----------------------------------------------------------------------------------------

    def _admitted(self, chosen: Sequence[Gate]) -> Admitted:
        started: dt.datetime = self._connection.scalars(select(clock())).one()
        grants: list[Grant] = []
        for gate in chosen:
            if gate.is_rate:
                self._count_start(gate, started)
            elif gate.id != self._held:
                taken = update(gates).where(gates.c.id == gate.id).values(used=gates.c.used + 1, touched_at=now())
                self._connection.execute(taken)
        slots = [gate.id for gate in chosen if not gate.is_rate]
        if self._held is not None and self._held not in slots:
            grants += leave_locked(self._connection, self._by_id[self._held], 1, self._grace)
        waited = None
        if self.ticket is not None:
            waited = (self.ticket.now - self.ticket.created_at).total_seconds()
            self._connection.execute(delete(tickets).where(*self._its_own))
        return Admitted(sorted(slots), grants, waited, started)

    def _count_start(self, gate: Gate, at: dt.datetime) -> None:
        gate.next_start = max(gate.next_start, at.timestamp()) + (gate.gap or 0.0)
        moved = update(gates).where(gates.c.id == gate.id).values(next_start=gate.next_start, touched_at=now())
        self._connection.execute(moved)

    # -- waiting ------------------------------------------------------------------------------------------

    def _full(self, wanted: Wanted) -> Full:
        gate = self._gates[(*wanted.of_key, wanted.shard)]
        limit, grants = wanted.limit, self._give_back()
        if limit.on_full != "wait":
            return Full(wanted, gate, grants=grants, why=self._why(wanted, gate))
        if limit.max_waiting is not None and self.ticket is None and self._waiting_for(wanted) >= limit.max_waiting:
            return Full(wanted, gate, grants=grants, why="max_waiting steps wait for it already")
        self._enter(wanted, gate)
        its_gates = (self._gates[place] for place in wanted.places(self._all_shards))
        for one in its_gates:
            grants += look_again(self._connection, one, self._grace)
        return Full(wanted, gate, grants=grants)

    def _why(self, wanted: Wanted, gate: Gate) -> str:
        """Why an applicant that does not wait may not start, with the numbers that apply now."""
        now_in_use = select(limits.c.max, limits.c.per).where(limits.c.name == wanted.limit.gate_name)
        row = self._connection.execute(now_in_use).one()
        return why_full(row.max, row.per, gate.gap, time_left(self._connection, gate, after=gate.used))

    def wait_behind(self, name: str, first_id: str, first: Applicant | None) -> Full:
        """Wait at the gate `name` for a run that was started before, and give a free slot to that one. `first`: that
        run, if its row could be locked; otherwise another transaction starts or ends it at this moment."""
        self._lock()
        wanted = next(one for one in self._wanted if one.limit.gate_name == name)
        gate = self._gates[(*wanted.of_key, wanted.shard)]
        used = gate.used
        grants: list[Grant] = []
        self._connection.execute(delete(tickets).where(*self._its_own))
        if self._held == gate.id:
            gate.used -= 1
        elif self._held is not None:
            grants += leave_unstarted(self._connection, self._by_id[self._held], 1, self._grace)
        self._enter(wanted, gate)
        if first is not None:
            self._insert_ticket(first, wanted, gate, self._base_of(first, wanted, gate))
            grants += grant_run(self._connection, gate, first_id, self._grace)
        count_slots(self._connection, gate, used)
        return Full(wanted, gate, grants=grants)

    def _give_back(self) -> list[Grant]:
        """Delete its ticket and release what it was granted: it holds nothing while it waits at another gate or does
        not wait."""
        if self.ticket is None:
            return []
        self._connection.execute(delete(tickets).where(*self._its_own))
        if self._held is None:
            return []
        return leave_unstarted(self._connection, self._by_id[self._held], 1, self._grace)

    def _waiting_for(self, wanted: Wanted) -> int:
        """The number of tickets that wait at the gates of the key, counted up to the limit's maximum. Those that a rate
        has called wait for their time."""
        ids = [self._gates[place].id for place in wanted.places(self._all_shards)]
        some = (
            select(literal(1))
            .where(tickets.c.gate.in_(ids), tickets.c.granted_at.is_(None))
            .limit(wanted.limit.max_waiting or 1)
            .subquery()
        )
        called = sum(self._by_id[one].used for one in ids if self._by_id[one].is_rate)
        return called + int(self._connection.scalar(select(func.count()).select_from(some)) or 0)

    def _enter(self, wanted: Wanted, gate: Gate) -> None:
        """Add a ticket at the end of the queue, or at its old place if it moves from another gate."""
        one, before = self._applicant, self.ticket
        moves_up = one.goes_first and is_singleton(wanted.limit)
        base = self._base_of(one, wanted, gate) if before is None or moves_up else before.base
        self._insert_ticket(one, wanted, gate, base, None if before is None else before.created_at)

    def _insert_ticket(
        self, one: Applicant, wanted: Wanted, gate: Gate, base: float, created_at: dt.datetime | None = None
    ) -> None:
        """Does not change a ticket that it has already."""
        values = {
            "run_id": one.run_id,
            "path": one.path,
            "token": one.token,
            "gate": gate.id,
            "base": base,
            "rank": rank_of(base, one.level if one.since is None else 0),
            "fair_group": wanted.group,
            "workflow": one.workflow,
            "version": one.version,
            "attempt": one.attempt,
            "lost": one.lost,
            "queue": one.queue,
            "level": one.level,
            "created_at": created_at or now(),
        }
        new = dialect_of(self._connection).insert(tickets).values(values)
        self._connection.execute(new.on_conflict_do_nothing())

    def _base_of(self, one: Applicant, wanted: Wanted, gate: Gate) -> float:
        if one.goes_first and is_singleton(wanted.limit):
            return 0.0
        if wanted.group is None and one.since is not None:
            return one.since.timestamp()
        if wanted.group is None:
            return arrival(self._connection, gate.id)
        at: dt.datetime = self._connection.scalars(select(clock())).one()
        in_front = (tickets.c.gate == gate.id, tickets.c.granted_at.is_(None))
        by_rank = (tickets.c.rank, tickets.c.run_id, tickets.c.path)
        first = self._connection.scalar(select(tickets.c.base).where(*in_front).order_by(*by_rank).limit(1))
        its_group = tickets.c.fair_group == wanted.group
        last = self._connection.scalar(select(func.max(tickets.c.base)).where(*in_front, its_group))
        return fair_base(at.timestamp(), first, last)


def arrival(connection: Connection, gate_id: int) -> float:
    """The queue position of a ticket that arrives now."""
    at: dt.datetime = connection.scalars(select(clock())).one()
    base = at.timestamp()
    if connection.dialect.name == "sqlite":
        # The clock may stand still in a lab; the position must still grow.
        in_front = (tickets.c.gate == gate_id, tickets.c.granted_at.is_(None))
        last = connection.scalar(select(func.max(tickets.c.rank)).where(*in_front))
        return base if last is None or last < base else last + 1e-6
    return base
