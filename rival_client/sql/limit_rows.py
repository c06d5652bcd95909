"""Rows of limits and of their gates: made when they are first needed, changed when a limit is registered or set."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sqlalchemy import Connection, and_, select, update
from sqlalchemy.dialects import postgresql, sqlite

from rival_client.db.limit_tables import gates, limits
from rival_client.db.types import now
from rival_client.model.limits.limit_shards import called_ahead, pace, share
from rival_client.model.limits.limits import Limit
from rival_client.sql.gates import call_again, lock_gates, look_again


def make_gates(connection: Connection, limit: Limit, key: str) -> None:
    """All shards of a key. Their maximum is that of the limit's row, which a change of the limit locks."""
    ensure_limit(connection, limit)
    row = connection.execute(select(limits).where(limits.c.name == limit.gate_name).with_for_update(read=True)).one()
    _add_shards(connection, row, key, range(max(row.shards, limit.shards)))


def gate_numbers(limit: Any) -> Callable[[int], dict[str, Any]]:
    """The columns of the gates of a limit, by shard."""
    if limit.per is None:
        return lambda shard: {"max": share(limit.max, limit.shards, shard), "gap": None, "slack": None}
    its_pace = pace(limit.max, limit.per, limit.burst)
    called = called_ahead(its_pace.gap) if limit.max else 0
    return lambda shard: {"max": called, "gap": its_pace.gap, "slack": its_pace.slack}


def ensure_limit(connection: Connection, limit: Limit) -> None:
    """The row of a limit that no registration has made."""
    values = {"name": limit.gate_name, "max": limit.max, "per": limit.per, "burst": limit.burst}
    new = dialect_of(connection).insert(limits).values(**values, shards=limit.shards, updated_at=now())
    connection.execute(new.on_conflict_do_nothing())


def register_limit(connection: Connection, limit: Limit) -> None:
    """A definition has this limit. What an operator has set stays; the number of shards is that of the definition."""
    ensure_limit(connection, limit)
    row = connection.execute(select(limits).where(limits.c.name == limit.gate_name).with_for_update()).one()
    if row.set_by is not None:
        if (row.defined_max, row.shards) != (limit.max, limit.shards):
            change_limit(connection, row, defined_max=limit.max, shards=limit.shards)
    elif (row.max, row.per, row.burst, row.shards) != (limit.max, limit.per, limit.burst, limit.shards):
        change_limit(connection, row, max=limit.max, per=limit.per, burst=limit.burst, shards=limit.shards)


def change_limit(connection: Connection, row: Any, **values: Any) -> None:
    """Change the row of a limit, which is locked, and its gates. What has room now is granted; keepers publish it.

    Workers look for room at as many shards as their definition says: a maximum that an operator sets is divided among
    these. No gate is deleted: what waits at it must be found."""
    changed = update(limits).where(limits.c.name == row.name).values(**values, updated_at=now())
    new = connection.execute(changed.returning(limits)).one()
    numbers = gate_numbers(new)
    locked = lock_gates(connection, gates.c.name == row.name)
    for gate in locked:
        fields = {**numbers(gate.shard), "shards": max(gate.shards, new.shards)}
        connection.execute(update(gates).where(gates.c.id == gate.id).values(fields))
        for name, value in fields.items():
            setattr(gate, name, value)
    if new.shards > row.shards:
        for key in sorted({gate.key for gate in locked}):
            _add_shards(connection, new, key, range(row.shards, new.shards))
        known = [gate.id for gate in locked]
        locked += lock_gates(connection, and_(gates.c.name == row.name, gates.c.id.not_in(known)))
    for gate in locked:
        if gate.is_rate:
            call_again(connection, gate, 0, most=gate.used)
        look_again(connection, gate, grace=0)


def _add_shards(connection: Connection, limit: Any, key: str, shards: range) -> None:
    numbers = gate_numbers(limit)
    common = {"name": limit.name, "key": key, "shards": limit.shards, "touched_at": now()}
    for shard in shards:
        new = dialect_of(connection).insert(gates).values({**common, "shard": shard, **numbers(shard)})
        connection.execute(new.on_conflict_do_nothing())


def dialect_of(connection: Connection) -> Any:
    return postgresql if connection.dialect.name == "postgresql" else sqlite
