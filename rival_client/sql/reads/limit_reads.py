"""Limits, how much of each is in use, and how many wait: bounded in limits and keys."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass

from sqlalchemy import Connection, func, select

from rival_client.db.limit_tables import gates, limits, tickets
from rival_client.model.why.why_facts import LimitFacts
from rival_client.sql.reads.capped_counts import CAP, Count

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
    return [
        LimitUse(row.name, row.max, row.per, row.set_by, row.updated_at, _keys(connection, row.name)) for row in found
    ]


def _keys(connection: Connection, name: str) -> tuple[KeyUse, ...]:
    its = select(gates.c.id, gates.c.key, gates.c.max, gates.c.used).where(gates.c.name == name).limit(CAP)
    fullest = sorted(connection.execute(its).all(), key=lambda row: -row.used)[:_KEYS]
    return tuple(KeyUse(row.key, row.max, row.used, _waiting(connection, row.id)) for row in fullest)


def _waiting(connection: Connection, gate: int) -> Count:
    some = select(tickets.c.run_id).where(tickets.c.gate == gate, tickets.c.granted_at.is_(None)).limit(CAP + 1)
    number = connection.scalar(select(func.count()).select_from(some.subquery())) or 0
    return Count(min(number, CAP), number > CAP)


def limits_of(connection: Connection, run_id: str) -> dict[str, LimitFacts]:
    """Path ("": the run) -> the limit that it waits for."""
    columns = (gates.c.name, gates.c.key, gates.c.max, gates.c.used)
    its = (tickets.c.path, tickets.c.granted_at, tickets.c.created_at, tickets.c.due_at)
    joined = select(*its, *columns).join(gates, gates.c.id == tickets.c.gate)
    found = connection.execute(joined.where(tickets.c.run_id == run_id).limit(_TICKETS))
    return {
        row.path: LimitFacts(
            row.name, row.key, row.max, row.used, row.created_at, row.granted_at is not None, row.due_at
        )
        for row in found
    }
