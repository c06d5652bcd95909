"""Reads where the runs of a list are: the first open steps of each run, and what these wait for. At most `LOOKED_AT`
steps of each open run are read.
"""

from __future__ import annotations

import datetime as dt
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
from rival_client.db.run_tables import steps
from rival_client.model.kinds import INTERNAL, ITEM
from rival_client.sql.reads.run_rows import INPUT_START

#: Steps of a run that are read to find an open one.
LOOKED_AT = 1000
#: The same for one run, of which more is asked.
LOOKED_AT_CLOSELY = 20_000
#: Open steps of a run that are returned.
OPEN_STEPS = 30
_STEP_COLUMNS = (
    *("run_id", "path", "kind", "status", "attempts", "lost", "executor_id", "parked", "due_at", "timeout_at"),
    *("created_at", "started_at", "heartbeat_at", "total", "opened", "remaining", "progress", "ring_at", "queue"),
    *("start_by", "deadline_at"),
)


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
    #: None: the fleet's own.
    queue: str | None
    #: When its first attempt must have begun, and when it must have ended.
    start_by: dt.datetime | None
    deadline_at: dt.datetime | None
    error: str | None
    child: str | None
    topic: str | None
    key: str | None


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


def open_steps_closely(connection: Connection, run_id: str) -> list[OpenStep]:
    """Of one run: also callbacks of composites, and those behind very many steps that have ended."""
    found = connection.execute(_of_one_run(closely=True), {"of_run": run_id}).mappings()
    return [OpenStep(**row) for row in found]


@cache
def _of_one_run(closely: bool = False) -> Select[Any]:
    """Made once: to make it takes longer than to execute it."""
    return _with_wait(_first_open(bindparam("of_run", type_=Text), closely=closely))


def _first_open(run_id: Any, outside: FromClause | None = None, closely: bool = False) -> Select[Any]:
    item = cast(steps.c.item, Text)
    child = func.substr(item, 1, 500).label("child")
    error = func.substr(cast(steps.c.error, Text), 1, INPUT_START).label("error")
    columns = [steps.c[name] for name in _STEP_COLUMNS]
    first = select(*columns, error, child, steps.c.completed_at).where(steps.c.run_id == run_id)
    most, silent = (LOOKED_AT_CLOSELY, (ITEM,)) if closely else (LOOKED_AT, INTERNAL)
    looked_at = first.order_by(steps.c.path).limit(most).correlate(outside).subquery()
    is_open = and_(looked_at.c.completed_at.is_(None), looked_at.c.kind.not_in(silent))
    wanted = [column for column in looked_at.c if column.name != "completed_at"]
    return select(*wanted).where(is_open).order_by(looked_at.c.path).limit(OPEN_STEPS)


def _with_wait(statement: Select[Any]) -> Select[Any]:
    found = statement.subquery()
    same = and_(waits.c.run_id == found.c.run_id, waits.c.path == found.c.path)
    return select(*found.c, waits.c.topic, waits.c.key).select_from(found.outerjoin(waits, same)).order_by(found.c.path)
