"""Runs as rows of a list: without results, with the beginning of the input, and with what each open run stands at.

A page reads 50 rows of an index and at most `LOOKED_AT` steps of each open run, whatever the size of inputs, results
and runs.
"""

from __future__ import annotations

import datetime as dt
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from sqlalchemy import (
    Connection,
    FromClause,
    RowMapping,
    Select,
    Text,
    and_,
    bindparam,
    cast,
    func,
    select,
    true,
    values,
)
from sqlalchemy import column as plain_column

from rival_client.db.event_tables import waits
from rival_client.db.run_tables import runs, steps
from rival_client.model.kinds import INTERNAL
from rival_client.sql.run_counts import Count, capped
from rival_client.sql.run_search import Cursor, RunFilter, newest_runs

#: Characters of an input that a row has.
INPUT_START = 2000
#: Steps of a run that are read to find an open one.
LOOKED_AT = 1000
#: Open steps of a run that are returned.
OPEN_STEPS = 30

_NARROW = (
    runs.c.id,
    runs.c.workflow,
    runs.c.version,
    runs.c.status,
    runs.c.failed_step,
    runs.c.parked,
    runs.c.created_at,
    runs.c.started_at,
    runs.c.completed_at,
    runs.c.parent_run_id,
    runs.c.parent_path,
    runs.c.paused_at,
    func.substr(cast(runs.c.error, Text), 1, INPUT_START).label("error"),
    func.substr(cast(runs.c.input, Text), 1, INPUT_START).label("input"),
)
_STEP_COLUMNS = (
    *("run_id", "path", "kind", "status", "attempts", "lost", "executor_id", "parked", "due_at", "timeout_at"),
    *("created_at", "started_at", "heartbeat_at", "total", "opened", "remaining", "progress", "ring_at"),
)


@dataclass(frozen=True)
class RunRow:
    """`input` and `error`: the first characters of their JSON."""

    id: str
    workflow: str
    version: str
    status: str
    failed_step: str | None
    parked: str | None
    created_at: dt.datetime
    started_at: dt.datetime | None
    completed_at: dt.datetime | None
    parent_run_id: str | None
    parent_path: str | None
    paused_at: dt.datetime | None
    error: str | None
    input: str | None

    @property
    def is_open(self) -> bool:
        return self.completed_at is None


@dataclass(frozen=True)
class OpenStep:
    """A step that has not ended, with what it waits for. `child`: the run that it waits for."""

    run_id: str
    path: str
    kind: str
    status: str
    attempts: int
    lost: int
    executor_id: str | None
    parked: str | None
    due_at: dt.datetime | None
    timeout_at: dt.datetime | None
    created_at: dt.datetime
    started_at: dt.datetime | None
    heartbeat_at: dt.datetime | None
    total: int | None
    opened: int | None
    remaining: int | None
    progress: Any
    #: When a keeper looks at it again.
    ring_at: dt.datetime | None
    error: str | None
    child: str | None
    topic: str | None
    key: str | None


def list_rows(
    connection: Connection, chosen: RunFilter | None = None, *, behind: Cursor | None = None, limit: int = 50
) -> tuple[list[RunRow], str | None]:
    """One page, and the cursor of the next one if there is one."""
    statement = newest_runs(connection, _NARROW, chosen or RunFilter(), behind, limit + 1)
    found = [RunRow(**row) for row in connection.execute(statement).mappings()]
    more = len(found) > limit
    return found[:limit], str(Cursor(found[limit - 1].created_at, found[limit - 1].id)) if more else None


def rows_by_id(connection: Connection, run_ids: Sequence[str]) -> list[RunRow]:
    """In the order of the ids; what does not exist is left out."""
    found = connection.execute(select(*_NARROW).where(runs.c.id.in_(run_ids))).mappings()
    by_id = {row["id"]: RunRow(**row) for row in found}
    return [by_id[one] for one in run_ids if one in by_id]


def rows_beginning(connection: Connection, beginning: str, limit: int) -> list[RunRow]:
    """The runs whose ids begin with this, in the order of their ids: a range of the primary key."""
    begins = (runs.c.id >= beginning, runs.c.id < beginning + chr(sys.maxunicode))
    found = connection.execute(select(*_NARROW).where(*begins).order_by(runs.c.id).limit(limit)).mappings()
    return [RunRow(**row) for row in found]


# -- what they stand at -----------------------------------------------------------------------------------


def open_steps(connection: Connection, run_ids: Sequence[str]) -> dict[str, list[OpenStep]]:
    """Run -> its first open steps by path. Of a run with very many steps only the first ones are looked at."""
    found: dict[str, list[OpenStep]] = {}
    for row in _open_rows(connection, run_ids):
        found.setdefault(row["run_id"], []).append(OpenStep(**row))
    return found


def _open_rows(connection: Connection, run_ids: Sequence[str]) -> Sequence[RowMapping]:
    if not run_ids:
        return []
    if connection.dialect.name != "postgresql":
        return [row for one in run_ids for row in connection.execute(_of_one_run(), {"of_run": one}).mappings()]
    wanted = values(plain_column("id", Text), name="wanted").data([(one,) for one in run_ids])
    each = _first_open(wanted.c.id, wanted).lateral()
    return connection.execute(_with_wait(select(each).select_from(wanted.join(each, true())))).mappings().all()


@cache
def _of_one_run() -> Select[Any]:
    """Made once: to make it takes longer than to execute it."""
    return _with_wait(_first_open(bindparam("of_run", type_=Text)))


def _first_open(run_id: Any, outside: FromClause | None = None) -> Select[Any]:
    item = cast(steps.c.item, Text)
    child = func.substr(item, 1, 500).label("child")
    error = func.substr(cast(steps.c.error, Text), 1, INPUT_START).label("error")
    columns = [steps.c[name] for name in _STEP_COLUMNS]
    first = select(*columns, error, child, steps.c.completed_at).where(steps.c.run_id == run_id)
    looked_at = first.order_by(steps.c.path).limit(LOOKED_AT).correlate(outside).subquery()
    is_open = and_(looked_at.c.completed_at.is_(None), looked_at.c.kind.not_in(INTERNAL))
    wanted = [column for column in looked_at.c if column.name != "completed_at"]
    return select(*wanted).where(is_open).order_by(looked_at.c.path).limit(OPEN_STEPS)


def _with_wait(statement: Select[Any]) -> Select[Any]:
    found = statement.subquery()
    same = and_(waits.c.run_id == found.c.run_id, waits.c.path == found.c.path)
    return select(*found.c, waits.c.topic, waits.c.key).select_from(found.outerjoin(waits, same)).order_by(found.c.path)


def children_of(connection: Connection, run_id: str) -> Count:
    return capped(connection, runs.c.parent_run_id == run_id, order=())


def children_started_by(connection: Connection, run_id: str, path: str, limit: int) -> Sequence[str]:
    """The runs that one step has started."""
    wanted = (runs.c.parent_run_id == run_id, runs.c.parent_path == path)
    return connection.scalars(select(runs.c.id).where(*wanted).order_by(runs.c.created_at).limit(limit)).all()


def last_inputs(connection: Connection, workflow: str, limit: int) -> Sequence[RowMapping]:
    """The newest runs of a workflow with their whole inputs."""
    columns = (runs.c.id, runs.c.version, runs.c.status, runs.c.created_at, runs.c.input)
    newest = newest_runs(connection, columns, RunFilter(workflow=workflow), None, limit)
    return connection.execute(newest).mappings().all()
