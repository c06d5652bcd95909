"""Runs as rows of a list: without results, and with the beginning of the input. A page reads 50 rows of an
index, whatever the size of inputs, results and runs.
"""

from __future__ import annotations

import datetime as dt
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, RowMapping, Text, cast, func, select

from rival_client.db.run_tables import runs
from rival_client.sql.reads.run_cursor import Cursor
from rival_client.sql.reads.run_filter import RunFilter
from rival_client.sql.reads.run_search import newest_runs

#: Characters of an input that a row has.
INPUT_START = 2000

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


def versions_of(connection: Connection, run_ids: Sequence[str]) -> dict[str, tuple[str, str]]:
    """Run -> its workflow and version."""
    found = connection.execute(select(runs.c.id, runs.c.workflow, runs.c.version).where(runs.c.id.in_(run_ids)))
    return {row.id: (row.workflow, row.version) for row in found}


def rows_beginning(connection: Connection, beginning: str, limit: int) -> list[RunRow]:
    """The runs whose ids begin with this, in the order of their ids: a range of the primary key."""
    begins = (runs.c.id >= beginning, runs.c.id < beginning + chr(sys.maxunicode))
    found = connection.execute(select(*_NARROW).where(*begins).order_by(runs.c.id).limit(limit)).mappings()
    return [RunRow(**row) for row in found]


def last_inputs(connection: Connection, workflow: str, limit: int) -> Sequence[RowMapping]:
    """The newest runs of a workflow with their whole inputs."""
    columns = (runs.c.id, runs.c.version, runs.c.status, runs.c.created_at, runs.c.input)
    newest = newest_runs(connection, columns, RunFilter(workflow=workflow), None, limit)
    return connection.execute(newest).mappings().all()
