"""Reads limits, how much of each is in use, and how many steps or runs wait. Bounded in limits and keys."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import Connection, Row, func, select

from rival_client.db.limit_tables import gates, limits, tickets
from rival_client.db.run_tables import runs
from rival_client.model.why.why_facts import LimitFacts
from rival_client.sql.reads.capped_counts import CAP, Count
from rival_client.sql.reads.run_family import line_of

_KEYS = 20
#: Tickets of one run that are read.
_TICKETS = 300


@dataclass(frozen=True)
class LimitUse:
    """One limit with its fullest keys. `per`: of a rate, the seconds."""

    name: str
    maximum: int
    per: float | None
    set_by: str | None
    updated_at: dt.datetime
    keys: tuple[KeyUse, ...]


@dataclass(frozen=True)
class KeyUse:
    key: str
    maximum: int
    used: int
    waiting: Count


def list_limits(connection: Connection, limit: int = 200) -> list[LimitUse]:
    found = connection.execute(select(limits).order_by(limits.c.name).limit(limit)).all()
    return [LimitUse(row.name, row.max, row.per, row.set_by, row.updated_at, _keys(connection, row)) for row in found]


def _keys(connection: Connection, limit: Any) -> tuple[KeyUse, ...]:
    its = select(gates.c.id, gates.c.key, gates.c.max, gates.c.used).where(gates.c.name == limit.name).limit(CAP)
    fullest = sorted(connection.execute(its).all(), key=lambda row: -row.used)[:_KEYS]
    if limit.per is None:
        return tuple(KeyUse(row.key, row.max, row.used, _waiting(connection, row.id, 0)) for row in fullest)
    # The slots of a rate are tickets that wait for their time.
    return tuple(KeyUse(row.key, limit.max, 0, _waiting(connection, row.id, row.used)) for row in fullest)


def _waiting(connection: Connection, gate: int, called: int) -> Count:
    some = select(tickets.c.run_id).where(tickets.c.gate == gate, tickets.c.granted_at.is_(None)).limit(CAP + 1)
    number = called + (connection.scalar(select(func.count()).select_from(some.subquery())) or 0)
    return Count(min(number, CAP), number > CAP)


def limits_of(connection: Connection, run_id: str) -> dict[str, LimitFacts]:
    """Path ("": the run) -> the limit that it waits for. A limit in shards counts as one."""
    its = (tickets.c.path, tickets.c.granted_at, tickets.c.created_at, tickets.c.due_at, tickets.c.ring_at)
    shards = gates.alias()
    same = (shards.c.name == gates.c.name, shards.c.key == gates.c.key)
    every = [select(func.sum(shards.c[name])).where(*same).scalar_subquery().label(name) for name in ("max", "used")]
    joined = select(*its, gates.c.name, gates.c.key, gates.c.gap, *every).join(gates, gates.c.id == tickets.c.gate)
    rows = connection.execute(joined.where(tickets.c.run_id == run_id).limit(_TICKETS)).all()
    found = {row.path: _limit_facts(row) for row in rows}
    if (own := found.get("")) is not None:
        found[""] = replace(own, held_by=_ancestor_with_slot(connection, run_id, own))
    return found


def _ancestor_with_slot(connection: Connection, run_id: str, limit: LimitFacts) -> str | None:
    """The nearest run around it that uses a slot of the limit that it waits for."""
    its_gates = set(connection.scalars(select(gates.c.id).where(gates.c.name == limit.name, gates.c.key == limit.key)))
    for one in connection.execute(line_of(run_id, runs.c.id, runs.c.slots)):
        if its_gates.intersection(one.slots or ()):
            return str(one.id)
    return None


def _limit_facts(row: Row[Any]) -> LimitFacts:
    return LimitFacts(
        row.name,
        row.key,
        row.max,
        row.used,
        row.created_at,
        granted=row.granted_at is not None,
        due_at=row.due_at,
        ring_at=row.ring_at,
        is_rate=row.gap is not None,
    )
