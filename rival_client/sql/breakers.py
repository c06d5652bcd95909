"""Circuit breakers: reads of their rows, and the verbs of operators. The statements take an open connection."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, delete, func, select, tuple_, update
from sqlalchemy.dialects import postgresql, sqlite

from rival_client.db.failure_tables import breaker_failures, breakers
from rival_client.db.types import after, now
from rival_client.model.policies.breakers import BreakerRecord, BreakerState
from rival_client.model.workflow_info import breakers_in
from rival_client.sql.breaker_waits import call_waiting
from rival_client.sql.fleet_rules import list_rules
from rival_client.sql.recovery import chosen
from rival_client.sql.workflows import list_workflows

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
        _delete_failures(connection, name)


def _delete_failures(connection: Connection, name: str) -> None:
    """Rows that others have locked stay: an executor locks its own one first, and may wait for the breaker's row. They
    are too old after a window."""
    columns = (breaker_failures.c.name, breaker_failures.c.bucket, breaker_failures.c.executor_id)
    counted = select(*columns).where(breaker_failures.c.name == name).with_for_update(skip_locked=True)
    connection.execute(delete(breaker_failures).where(tuple_(*columns).in_(chosen(counted))))


def list_breakers(connection: Connection) -> list[BreakerRecord]:
    counted = select(func.coalesce(func.sum(breaker_failures.c.failures), 0)).where(
        breaker_failures.c.name == breakers.c.name
    )
    found = connection.execute(select(breakers, counted.scalar_subquery().label("failures")).order_by(breakers.c.name))
    rows = (dict(row) for row in found.mappings())
    return [BreakerRecord(**{name: value for name, value in row.items() if name != "probe_token"}) for row in rows]


def open_breaker(connection: Connection, name: str, seconds: float | None, by: str) -> None:
    """`seconds` None: until an operator closes it. A shorter time than before: a step that waits may probe then."""
    row = None
    while row is None:  # another operator may delete it in between
        ensure_breaker(connection, name, by)
        row = lock_breaker(connection, name)
    until = None if seconds is None else after(seconds)
    change_breaker(connection, name, "open", by, until=until, opened=row.opened + 1, **NO_PROBE)
    if seconds is not None:
        call_waiting(connection, name, 1, seconds)


def close_breaker(connection: Connection, name: str, by: str) -> bool:
    """The first step that waits is called, and each success after that calls two more. False: the breaker does not
    exist, or it is closed."""
    row = lock_breaker(connection, name)
    if row is None or row.state == "closed":
        return False
    change_breaker(connection, name, "closed", by, until=None, opened=0, **NO_PROBE)
    call_waiting(connection, name, 1)
    return True


def reset_breaker(connection: Connection, name: str) -> bool:
    """Delete the breaker with all that it has counted. Steps that wait are called as when it is closed."""
    connection.execute(delete(breaker_failures).where(breaker_failures.c.name == name))
    if connection.execute(delete(breakers).where(breakers.c.name == name)).rowcount == 0:
        return False
    call_waiting(connection, name, 1)
    return True


def breaker_names(connection: Connection) -> list[str]:
    return list(connection.scalars(select(breakers.c.name)))


def known_breakers(connection: Connection) -> set[str]:
    """The circuit breakers that exist, and those of the registered workflows and of the rules of the fleet."""
    registered = (breakers_in(info.policies) for info in list_workflows(connection))
    of_rules = (breakers_in(dict(one.rule.options)) for one in list_rules(connection))
    return set(breaker_names(connection)).union(*registered, *of_rules)
