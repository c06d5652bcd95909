"""Compares each run in the tables with the run rebuilt from its history. Every test of the engine ends with this."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from sqlalchemy import Column, ColumnElement, Connection, Row, Select, Table, select, true

from rival_client.db.database import Database
from rival_client.db.log_tables import history
from rival_client.db.run_tables import runs, steps
from rival_client.model.limits.singletons import rules_of, singleton_of
from rival_client.model.rebuild import rebuild
from rival_client.model.rebuilt_records import RebuiltRun
from rival_client.sql.reads.history_columns import as_entry
from rival_client.sql.reads.history_reads import whole_entries

RUN_FIELDS = ("status", "result", "error", "failed_step")
#: What the first entry of a run has: until the run begins, its row alone has it.
START_FIELDS = ("labels", "policies", "singleton")
#: Times are left out: on SQLite two statements of one transaction are microseconds apart.
STEP_FIELDS = (
    "kind",
    "status",
    "attempts",
    "lost",
    "result",
    "state",
    "error",
    "item",
    "end_order",
    "begun_after",
    "fallback",
    "queue",
)


def assert_histories_are_complete(database: Database, run_id: str | None = None) -> int:
    """Of all runs, or of one. Returns how many were compared. All rows of a table are read at once: some tests leave
    ten thousand runs."""
    columns = (runs.c.id, runs.c.paused_at, runs.c.started_at, *_columns(runs, RUN_FIELDS + START_FIELDS))
    kept_columns = (steps.c.run_id, steps.c.path, *_columns(steps, STEP_FIELDS))
    with database.snapshot() as connection:
        rows = connection.execute(select(*columns).where(_is(runs.c.id, run_id))).mappings().all()
        wanted = whole_entries(connection).where(_is(history.c.run_id, run_id))
        entries = _by_run(connection, wanted.order_by(history.c.id))
        kept = _by_run(connection, select(*kept_columns).where(_is(steps.c.run_id, run_id)))
    for row in rows:
        rebuilt = rebuild(map(as_entry, entries[row["id"]]))
        _assert_same(row["id"], {"": _recorded_run(rebuilt)}, {"": _kept_run(row)})
        _assert_same(row["id"], _recorded_steps(rebuilt), _kept_steps(kept[row["id"]]))
    return len(rows)


def _is(column: Column[Any], run_id: str | None) -> ColumnElement[bool]:
    return true() if run_id is None else column == run_id


def _columns(table: Table, names: Sequence[str]) -> list[Column[Any]]:
    return [table.c[name] for name in names]


def _by_run(connection: Connection, wanted: Select[Any]) -> defaultdict[str, list[Row[Any]]]:
    found: defaultdict[str, list[Row[Any]]] = defaultdict(list)
    for row in connection.execute(wanted):
        found[row.run_id].append(row)
    return found


def _assert_same(run_id: str, rebuilt: dict[str, Any], kept: dict[str, Any]) -> None:
    paths = (path for path in {*rebuilt, *kept} if _exact(rebuilt.get(path)) != _exact(kept.get(path)))
    differing = {path: (rebuilt.get(path), kept.get(path)) for path in paths}
    assert not differing, f"run {run_id!r}: path -> (rebuilt from its history, in the tables): {differing}"


def _exact(fields: Any) -> str:
    """As text, which has the order of keys and distinguishes 1 from 1.0."""
    return json.dumps(fields)


def _recorded_run(rebuilt: RebuiltRun) -> dict[str, Any]:
    return {name: getattr(rebuilt, name) for name in RUN_FIELDS + START_FIELDS} | {"paused": rebuilt.paused}


def _kept_run(row: Any) -> dict[str, Any]:
    given = {"labels": row["labels"], "policies": rules_of(row["policies"]), "singleton": singleton_of(row["policies"])}
    started = {name: given[name] if row["started_at"] else None for name in START_FIELDS}
    return {name: row[name] for name in RUN_FIELDS} | started | {"paused": row["paused_at"] is not None}


def _recorded_steps(rebuilt: RebuiltRun) -> dict[str, dict[str, Any]]:
    return {path: {name: getattr(step, name) for name in STEP_FIELDS} for path, step in rebuilt.steps.items()}


def _kept_steps(rows: list[Row[Any]]) -> dict[str, dict[str, Any]]:
    return {row.path: {name: getattr(row, name) for name in STEP_FIELDS} for row in rows}
