"""Decides whether a step or a run may start under its limits: it takes a slot at each gate, or a ticket at one of them.

All or nothing: a step that waits at one gate holds no slot of another. New applicants never overtake waiting tickets.
The lock order is that of `rival_client.sql.gates`: the caller has locked the rows of the step and the run.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from sqlalchemy import Connection, delete, func, literal, or_, select, tuple_, update

from rival_client.db.database import Database
from rival_client.db.limit_tables import gates, tickets
from rival_client.db.types import clock, now
from rival_client.model.limits.key_paths import value_at
from rival_client.model.limits.limit_shards import home_shard
from rival_client.model.limits.limits import Limit, fair_base, rank_of
from rival_client.sql.gates import Gate, Grant, leave_locked, lock_gates, look_again, time_left
from rival_client.sql.limit_rows import dialect_of, make_gates

T = TypeVar("T")


@dataclass(frozen=True)
class Wanted:
    """A limit that applies to a step, with the key and the shard that the step tries first."""

    limit: Limit
    key: str
    group: str | None
    shard: int

    @property
    def of_key(self) -> tuple[str, str]:
        return self.limit.gate_name, self.key

    def places(self, all_shards: bool) -> list[tuple[str, str, int]]:
        shards = range(self.limit.shards) if all_shards else [self.shard]
        return [(*self.of_key, shard) for shard in shards]


@dataclass(frozen=True)
class Applicant:
    """The step or run that asks to start. `path` is "" for a run."""

    run_id: str
    path: str
    #: The token of its row if it must wait.
    token: int
    workflow: str
    version: str
    attempt: int = 1
    lost: int = 0
    #: Its priority: -1 high, 0 normal, 1 low.
    level: int = 0
    #: The queue that its messages go to; None is the fleet's own queue.
    queue: str | None = None
    #: Sorts its ticket by this time instead of its arrival.
    since: dt.datetime | None = None

    def wants(self, its_limits: Sequence[Limit], values: Mapping[str, Any]) -> list[Wanted]:
        return [
            Wanted(
                limit,
                limit.key_for(values),
                None if limit.fair is None else value_at(limit.fair, values),
                home_shard(self.run_id, self.path, limit.shards),
            )
            for limit in its_limits
        ]


@dataclass(frozen=True)
class Admitted:
    """The applicant may start with these slots. `waited`: seconds since it took its ticket. `at`: its start by the
    clock, because the transaction may be older than the end of the step that used the slot before."""

    slots: list[int]
    grants: list[Grant] = field(default_factory=list)
    waited: float | None = None
    at: dt.datetime | None = None


@dataclass(frozen=True)
class Full:
    """The applicant may not start: this limit is full for this key."""

    wanted: Wanted
    gate: Gate
    #: The queue of the gate has reached its maximum as well.
    is_crowded: bool = False
    grants: list[Grant] = field(default_factory=list)


@dataclass(frozen=True)
class Early:
    """The rate limit allows the start only after `seconds`."""

    seconds: float


class GatesMissing(Exception):
    """These gates do not exist yet; they are inserted in a transaction of their own, and the caller tries again."""

    def __init__(self, wanted: Sequence[Wanted]) -> None:
        super().__init__([one.of_key for one in wanted])
        self.wanted = wanted


class ShardsNeeded(Exception):
    """The applicant's own shard is full: the caller must lock all shards, in order, and try again."""


def with_gates(database: Database, once: Callable[[bool], T]) -> T:
    """Repeat a transaction that raised GatesMissing or ShardsNeeded, with the gates inserted or all shards locked."""
    all_shards = False
    while True:
        try:
            return once(all_shards)
        except GatesMissing as missing:
            with database.transaction() as connection:
                for one in sorted(missing.wanted, key=lambda one: one.of_key):
                    make_gates(connection, one.limit, one.key)
        except ShardsNeeded:
            all_shards = True


class Admission:
    """One application to start, in one transaction."""

    def __init__(
        self, connection: Connection, applicant: Applicant, wanted: Sequence[Wanted], grace: float, all_shards: bool
    ) -> None:
        self._connection, self._applicant, self._grace = connection, applicant, grace
        self._wanted, self._all_shards = wanted, all_shards
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
        if not any(gate.id in self._queues for gate in its_gates):
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
            return Full(wanted, gate, grants=grants)
        if limit.max_waiting is not None and self.ticket is None and self._waiting_for(wanted) >= limit.max_waiting:
            return Full(wanted, gate, is_crowded=True, grants=grants)
        self._enter(wanted, gate)
        its_gates = (self._gates[place] for place in wanted.places(self._all_shards))
        for one in its_gates:
            grants += look_again(self._connection, one, self._grace)
        return Full(wanted, gate, grants=grants)

    def _give_back(self) -> list[Grant]:
        """Delete its ticket and release what it was granted: it holds nothing while it waits at another gate or does
        not wait."""
        if self.ticket is None:
            return []
        self._connection.execute(delete(tickets).where(*self._its_own))
        if self._held is None:
            return []
        return leave_locked(self._connection, self._by_id[self._held], 1, self._grace)

    def _waiting_for(self, wanted: Wanted) -> int:
        """The number of tickets that wait at the gates of the key, counted up to the limit's maximum."""
        ids = [self._gates[place].id for place in wanted.places(self._all_shards)]
        some = (
            select(literal(1))
            .where(tickets.c.gate.in_(ids), tickets.c.granted_at.is_(None))
            .limit(wanted.limit.max_waiting or 1)
            .subquery()
        )
        return int(self._connection.scalar(select(func.count()).select_from(some)) or 0)

    def _enter(self, wanted: Wanted, gate: Gate) -> None:
        """Add a ticket at the end of the queue, or at its old place if it moves from another gate."""
        one, before = self._applicant, self.ticket
        base = self._base(wanted, gate) if before is None else before.base
        values = {
            "run_id": one.run_id,
            "path": one.path,
            "token": one.token,
            "gate": gate.id,
            "base": base,
            "rank": rank_of(base, one.level),
            "fair_group": wanted.group,
            "workflow": one.workflow,
            "version": one.version,
            "attempt": one.attempt,
            "lost": one.lost,
            "queue": one.queue,
            "level": one.level,
            "created_at": now() if before is None else before.created_at,
        }
        self._connection.execute(dialect_of(self._connection).insert(tickets).values(values))

    def _base(self, wanted: Wanted, gate: Gate) -> float:
        if wanted.group is None and self._applicant.since is not None:
            return self._applicant.since.timestamp()
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
