"""Reads the use and the queue of a limit, and changes its maximum for an operator. Statements on an open connection."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, and_, func, or_, select, true, update

from rival_client.db.limit_tables import gates, limits, tickets
from rival_client.db.types import now
from rival_client.errors import UnknownLimit
from rival_client.model.limits.limit_records import LimitDetail, LimitKey, LimitRecord, LimitWaiter
from rival_client.sql.limit_rows import change_limit


def list_limits(connection: Connection, name: str | None = None) -> list[LimitRecord]:
    wanted = select(limits).where(true() if name is None else limits.c.name == name).order_by(limits.c.name)
    rows = connection.execute(wanted).all()
    of_gates = select(gates.c.name, func.count(gates.c.key.distinct()), func.sum(gates.c.used)).group_by(gates.c.name)
    used = {row[0]: (row[1], row[2]) for row in connection.execute(of_gates)}
    queue = (
        select(gates.c.name, func.count())
        .join(tickets, tickets.c.gate == gates.c.id)
        .where(tickets.c.granted_at.is_(None))
        .group_by(gates.c.name)
    )
    waiting = {row[0]: row[1] for row in connection.execute(queue)}
    return [_record(row, used.get(row.name, (0, 0)), waiting.get(row.name, 0)) for row in rows]


def _record(row: Any, used: tuple[int, int], waiting: int) -> LimitRecord:
    own = (row.name, row.max, row.per, row.burst, row.defined_max, row.set_by)
    return LimitRecord(*own, used[0], *_use(row.per, int(used[1] or 0), waiting))


def _use(per: float | None, used: int, waiting: int) -> tuple[int, int]:
    """The slots of a rate are tickets that wait for their time."""
    return (used, waiting) if per is None else (0, waiting + used)


def read_limit(connection: Connection, name: str, key: str | None, first: int) -> LimitDetail:
    found = list_limits(connection, name)
    if not found:
        raise UnknownLimit(name, [one.name for one in list_limits(connection)])
    of_key = (gates.c.name == name, true() if key is None else gates.c.key == key)
    waits = select(func.count()).where(tickets.c.gate == gates.c.id, tickets.c.granted_at.is_(None)).scalar_subquery()
    keys = connection.execute(
        select(gates.c.key, func.sum(gates.c.max), func.sum(gates.c.used).label("used"), func.sum(waits))
        .where(*of_key)
        .group_by(gates.c.key)
        .order_by(func.sum(gates.c.used).desc(), gates.c.key)
        .limit(first)
    )
    may_start = and_(tickets.c.granted_at.is_not(None), or_(tickets.c.due_at.is_(None), tickets.c.due_at <= now()))
    queue = connection.execute(
        select(gates.c.key, tickets.c.run_id, tickets.c.path, tickets.c.created_at, may_start)
        .join(gates, gates.c.id == tickets.c.gate)
        .where(*of_key)
        .order_by(tickets.c.granted_at.is_(None), tickets.c.due_at, tickets.c.rank)
        .limit(first)
    )
    by_key = tuple(_key(found[0], *row) for row in keys)
    return LimitDetail(
        found[0], by_key, tuple(LimitWaiter(row[0], row[1], row[2], row[3], bool(row[4])) for row in queue)
    )


def _key(of: LimitRecord, key: str, max: int, used: int, waiting: int | None) -> LimitKey:
    most = int(max) if of.per is None else of.max
    return LimitKey(key, most, *_use(of.per, int(used), int(waiting or 0)))


def set_limit(connection: Connection, name: str, max: int, by: str) -> LimitRecord:
    row = _locked(connection, name)
    defined = row.max if row.set_by is None else row.defined_max
    change_limit(connection, row, max=max, defined_max=defined, set_by=by)
    return list_limits(connection, name)[0]


def reset_limit(connection: Connection, name: str) -> LimitRecord:
    row = _locked(connection, name)
    if row.set_by is not None:
        change_limit(connection, row, max=row.defined_max or row.max, defined_max=None, set_by=None)
    return list_limits(connection, name)[0]


def _locked(connection: Connection, name: str) -> Any:
    # A write first: on SQLite the transaction is a writer from the beginning.
    connection.execute(update(limits).where(limits.c.name == name).values(name=name))
    row = connection.execute(select(limits).where(limits.c.name == name).with_for_update()).first()
    if row is None:
        raise UnknownLimit(name, [one.name for one in list_limits(connection)])
    return row


def limit_names(connection: Connection) -> list[str]:
    return list(connection.scalars(select(limits.c.name)))
