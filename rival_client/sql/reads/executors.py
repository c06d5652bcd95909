"""The executors of the fleet, as clients read them."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable
from dataclasses import dataclass, fields

from sqlalchemy import Connection, select

from rival_client.db.fleet_tables import executors
from rival_client.db.types import now


@dataclass(frozen=True)
class ExecutorRecord:
    """A process that runs attempts. Its attempts are taken over when its lease has expired."""

    executor_id: str
    worker: str
    host: str
    pid: int
    started_at: dt.datetime
    beat_at: dt.datetime
    expires_at: dt.datetime
    #: A problem that the executor has found in itself.
    problem: str | None
    is_alive: bool
    #: The queues that it serves, how many attempts it can run and runs, and its workflows: name -> versions.
    queues: list[str] | None = None
    slots: int | None = None
    busy: int | None = None
    workflows: dict[str, list[str]] | None = None


def list_executors(connection: Connection) -> list[ExecutorRecord]:
    """All that have a row: those that live, and those whose attempts are not taken over yet."""
    alive = (executors.c.expires_at > now()).label("is_alive")
    known = {one.name for one in fields(ExecutorRecord)}
    columns = [column for column in executors.columns if column.name in known]
    statement = select(executors.c.id.label("executor_id"), *columns, alive)
    found = connection.execute(statement.order_by(executors.c.worker, executors.c.started_at)).mappings()
    return [ExecutorRecord(**row) for row in found]


def workers_of(connection: Connection, executor_ids: Iterable[str]) -> dict[str, str]:
    """Executor -> the name of its worker, of those that still have a row."""
    wanted = list(executor_ids)
    if not wanted:
        return {}
    found = connection.execute(select(executors.c.id, executors.c.worker).where(executors.c.id.in_(wanted)))
    return {row.id: row.worker for row in found}
