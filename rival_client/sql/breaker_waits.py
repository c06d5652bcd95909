"""Steps that wait since their circuit breaker is open (`on_open="wait"`): a queue per breaker.

Each of them has a time at which it asks again, so none is lost here. What closes a breaker brings the time of the first
one forward, and each success after that the times of two more: they do not come all at once. The caller commits, and
keepers publish the messages. The rows of steps are taken with try-locks: the caller may have locked the breaker.
"""

from __future__ import annotations

from sqlalchemy import ColumnElement, Connection, and_, case, delete, exists, insert, select, tuple_, update

from rival_client.db.failure_tables import breaker_waits
from rival_client.db.run_tables import steps
from rival_client.db.types import after
from rival_client.model import statuses
from rival_client.model.timers import LEAD, NEVER_PUBLISHED
from rival_client.sql.recovery import chosen

_KEY = (breaker_waits.c.run_id, breaker_waits.c.path)
#: The step still waits as it did when it was entered here.
_STILL_WAITS = and_(
    steps.c.run_id == breaker_waits.c.run_id,
    steps.c.path == breaker_waits.c.path,
    steps.c.execution_token == breaker_waits.c.token,
    steps.c.status == statuses.WAITING_RETRY,
)


def add_wait(connection: Connection, run_id: str, path: str, token: int, breaker: str) -> None:
    """`token`: that of the waiting step."""
    remove_wait(connection, run_id, path)
    row = {"run_id": run_id, "path": path, "token": token, "name": breaker, "since": after(0)}
    connection.execute(insert(breaker_waits).values(row))


def remove_wait(connection: Connection, run_id: str, path: str) -> None:
    its_own = (breaker_waits.c.run_id == run_id, breaker_waits.c.path == path)
    connection.execute(delete(breaker_waits).where(*its_own))


def is_waited_for(breaker: str) -> ColumnElement[bool]:
    return exists(select(breaker_waits.c.name).where(breaker_waits.c.name == breaker))


def call_waiting(connection: Connection, breaker: str, most: int, seconds: float = 0.0) -> int:
    """Bring the time of the first steps that wait for the breaker forward, to `seconds` from now. Returns how many."""
    due = after(seconds)
    first = (
        select(steps.c.run_id, steps.c.path)
        .join(breaker_waits, _STILL_WAITS)
        .where(breaker_waits.c.name == breaker, steps.c.due_at > due, steps.c.parked.is_(None), ~steps.c.paused)
        .order_by(breaker_waits.c.since, *_KEY)
        .limit(most)
        .with_for_update(skip_locked=True)
    )
    look = after(max(0.0, seconds - LEAD))
    sooner = case((steps.c.ring_at < look, steps.c.ring_at), else_=look)
    called = connection.execute(
        update(steps)
        .where(tuple_(steps.c.run_id, steps.c.path).in_(chosen(first)))
        .values(due_at=due, ring_at=sooner, rings=NEVER_PUBLISHED)
        .returning(steps.c.run_id, steps.c.path)
    ).all()
    if seconds == 0:
        for one in called:
            remove_wait(connection, one.run_id, one.path)
    return len(called)


def remove_stale_waits(connection: Connection, breaker: str, most: int) -> None:
    """Of the first rows of the queue, delete those whose steps do not wait any more. A step that waits again meanwhile
    has a row with another token, which stays."""
    row = (*_KEY, breaker_waits.c.token)
    first = select(*_KEY).where(breaker_waits.c.name == breaker).order_by(breaker_waits.c.since, *_KEY).limit(most)
    # A scalar subquery instead of NOT EXISTS, for which Postgres would read all steps.
    waits = select(steps.c.path).where(_STILL_WAITS).scalar_subquery()
    stale = select(*row).where(tuple_(*_KEY).in_(chosen(first)), waits.is_(None))
    for one in connection.execute(stale).all():
        connection.execute(delete(breaker_waits).where(tuple_(*row) == tuple(one)))
