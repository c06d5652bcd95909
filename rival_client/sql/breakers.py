"""Circuit breakers: their rows, and what operators do with them. The statements take an open connection."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, delete, func, select, update
from sqlalchemy.dialects import postgresql, sqlite

from rival_client.db.failure_tables import breaker_failures, breakers
from rival_client.db.types import after, now
from rival_client.model.policies.breakers import BreakerRecord, BreakerState

#: No attempt probes.
NO_PROBE: dict[str, Any] = {"probe_run": None, "probe_path": None, "probe_token": None, "successes": 0}


def insert_into(connection: Connection, table: Any) -> Any:
    """An INSERT that can say what to do on a conflict."""
    return (postgresql if connection.dialect.name == "postgresql" else sqlite).insert(table)


def ensure_breaker(connection: Connection, name: str, by: str) -> None:
    new = insert_into(connection, breakers).values(name=name, state="closed", changed_at=now(), changed_by=by)
    connection.execute(new.on_conflict_do_nothing())


def lock_breaker(connection: Connection, name: str) -> Any:
    return connection.execute(select(breakers).where(breakers.c.name == name).with_for_update()).first()


def change_breaker(connection: Connection, name: str, state: BreakerState, by: str, **values: Any) -> None:
    """Call it with the row locked. What was counted before has had its effect."""
    changes = {"state": state, "changed_at": now(), "changed_by": by, **values}
    connection.execute(update(breakers).where(breakers.c.name == name).values(changes))
    if state != "half_open":
        connection.execute(delete(breaker_failures).where(breaker_failures.c.name == name))


def list_breakers(connection: Connection) -> list[BreakerRecord]:
    counted = select(func.coalesce(func.sum(breaker_failures.c.failures), 0)).where(
        breaker_failures.c.name == breakers.c.name
    )
    found = connection.execute(select(breakers, counted.scalar_subquery().label("failures")).order_by(breakers.c.name))
    rows = (dict(row) for row in found.mappings())
    return [BreakerRecord(**{name: value for name, value in row.items() if name != "probe_token"}) for row in rows]


def open_breaker(connection: Connection, name: str, seconds: float | None, by: str) -> None:
    """`seconds` None: until an operator closes it."""
    ensure_breaker(connection, name, by)
    opened = lock_breaker(connection, name).opened + 1
    until = None if seconds is None else after(seconds)
    change_breaker(connection, name, "open", by, until=until, opened=opened, **NO_PROBE)


def close_breaker(connection: Connection, name: str, by: str) -> bool:
    """False: it does not exist, or it is closed."""
    row = lock_breaker(connection, name)
    if row is None or row.state == "closed":
        return False
    change_breaker(connection, name, "closed", by, until=None, opened=0, **NO_PROBE)
    return True


def reset_breaker(connection: Connection, name: str) -> bool:
    """Delete the breaker with all that it has counted."""
    connection.execute(delete(breaker_failures).where(breaker_failures.c.name == name))
    return connection.execute(delete(breakers).where(breakers.c.name == name)).rowcount == 1
