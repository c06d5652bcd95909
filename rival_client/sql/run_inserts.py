"""The statements that insert runs. They take an open connection and never commit.

On Postgres one statement inserts one run or a thousand, with all their options. It has three forms: for SQLAlchemy, for
psycopg, which can join a producer's own transaction, and prepared. A single run without options has a shorter one.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterable
from typing import Any

from sqlalchemy import Connection, Text, bindparam, func, insert, literal, select, text
from sqlalchemy.dialects import sqlite

from rival_client.db.prepared_statement import Statement, Value
from rival_client.db.run_tables import NOT_BEGUN, SINGLETON_KEY, labels, runs
from rival_client.db.types import Timestamp, after, later, now
from rival_client.model import statuses
from rival_client.model.starts.starts import Start
from rival_client.model.timers import LEAD

_INSERT_RUNS = f"""
WITH start AS (
    SELECT clock_timestamp() AS at, coalesce(CAST(:scheduled_at AS timestamptz), clock_timestamp()
           + make_interval(secs => CAST(:delay AS double precision))) AS due_at
), limited AS (
    SELECT at, due_at, least(CAST(:deadline_at AS timestamptz), CAST(:until AS timestamptz), coalesce(due_at, at)
           + make_interval(secs => CAST(:deadline AS double precision))) AS deadline_at
    FROM start
), run AS (
    INSERT INTO rival_runs (id, workflow, version, status, input, ring_at, rings, created_at, due_at, deadline_at,
                            parent_run_id, parent_path, labels, singleton, queue, priority, policies)
    SELECT r.id, CAST(:workflow AS text), CAST(:version AS text), 'pending', CAST(r.input AS json),
           least(deadline_at, CASE CAST(:published AS integer) WHEN 1
               THEN coalesce(due_at, at) + make_interval(secs => CAST(:grace AS double precision))
               ELSE coalesce(due_at - interval '{LEAD} s', at) END),
           CAST(:published AS integer) - 1, at + r.place * interval '1 microsecond', due_at, deadline_at,
           CAST(:parent_run_id AS text), CAST(:parent_path AS text), CAST(:labels AS json),
           CAST(:singleton AS text), CAST(:queue AS text), CAST(:priority AS integer), CAST(:policies AS json)
    FROM limited,
         unnest(CAST(:ids AS text[]), CAST(:inputs AS text[]), CAST(:places AS integer[])) AS r(id, input, place)
    ON CONFLICT DO NOTHING
    RETURNING id, created_at
), labelled AS (
    INSERT INTO rival_labels (run_id, name, value, created_at)
    SELECT run.id, label.key, label.value, run.created_at
    FROM run, json_each_text(CAST(:labels AS json)) AS label
)
SELECT id FROM run
"""
_INSERT_RUNS_POSTGRES = text(_INSERT_RUNS)
#: The same in psycopg's own form, so that it can join a psycopg transaction.
INSERT_RUNS_PSYCOPG = re.sub(r":(\w+)", r"%(\1)s", _INSERT_RUNS)
#: A start of a single run with options.
INSERT_RUNS = Statement.of("rival_insert_runs", INSERT_RUNS_PSYCOPG)
#: A start of a single run without options.
INSERT_RUN = Statement.of(
    "rival_insert_run",
    """
INSERT INTO rival_runs (id, workflow, version, status, input, ring_at, created_at)
VALUES (%(id)s, %(workflow)s, %(version)s, 'pending', %(input)s::json, now() + make_interval(secs => %(grace)s), now())
ON CONFLICT (id) DO NOTHING
RETURNING 1
""",
)


def prepared(start: Start, grace: float) -> tuple[Statement, dict[str, Value]]:
    """The prepared statement that inserts one run, and its values. It returns a row if the run is new."""
    if start.is_plain:
        return INSERT_RUN, start.one(grace)
    values = start.all(grace)
    arrays = {name: _array(map(str, values[name])) for name in ("ids", "inputs", "places")}
    return INSERT_RUNS, {**values, **arrays}


def _array(texts: Iterable[str]) -> str:
    """An array literal of Postgres. Texts are quoted as in JSON."""
    quoted = (one.replace("\\", "\\\\").replace('"', '\\"') for one in texts)
    return "{" + ",".join(f'"{one}"' for one in quoted) + "}"


def insert_runs(connection: Connection, start: Start, grace: float) -> set[str]:
    """Insert the runs that do not exist yet; returns the ids that were inserted. `grace` 0: only the keeper
    publishes them."""
    if connection.dialect.name == "postgresql":
        return set(connection.scalars(_INSERT_RUNS_POSTGRES, start.all(grace)))
    given = [{"id": run_id, "given_input": str(its_input)} for run_id, its_input in start.inputs.items()]
    insert_each = _insert_on_sqlite(start, grace)
    if start.options.singleton is None:
        created = set(connection.scalars(insert_each, given)) if given else set()
    else:  # Each has a later time than the one before.
        created = {run_id for one in given for run_id in connection.scalars(insert_each, one)}
    _label_on_sqlite(connection, start, created)
    return created


def insert_or_queue(connection: Connection, start: Start, grace: float) -> set[str]:
    """As `insert_runs`. Runs that find their singleton place taken wait for it, if the start says so."""
    created = insert_runs(connection, start, grace)
    if start.may_queue and start.missing(created):
        created |= insert_runs(connection, start.queued(created), grace)
    return created


def _insert_on_sqlite(start: Start, grace: float) -> Any:
    values = start.all(grace)
    # As text: a producer's own engine has a JSON serialiser of its own, which would make a string of it again.
    return (
        sqlite.insert(runs)
        .values(
            id=bindparam("id"),
            workflow=values["workflow"],
            version=values["version"],
            status=statuses.PENDING,
            input=bindparam("given_input", type_=Text),
            created_at=_created_on_sqlite(start),
            **_times_on_sqlite(start, grace),
            parent_run_id=values["parent_run_id"],
            parent_path=values["parent_path"],
            labels=literal(values["labels"], Text),
            singleton=values["singleton"],
            queue=values["queue"],
            priority=values["priority"],
            policies=literal(values["policies"], Text),
        )
        .on_conflict_do_nothing()
        .returning(runs.c.id)
    )


def _created_on_sqlite(start: Start) -> Any:
    """Later than other runs that wait with the singleton key, also while the clock of a lab stands still."""
    key = start.options.singleton
    if key is None:
        return now()
    waiting: tuple[Any, ...] = (runs.c.workflow == start.workflow.name, key == SINGLETON_KEY, NOT_BEGUN)
    last = select(func.max(runs.c.created_at)).where(*waiting).scalar_subquery()
    return func.max(now(), func.coalesce(later(last, 1e-6), 0.0), type_=Timestamp())


def _times_on_sqlite(start: Start, grace: float) -> dict[str, Any]:
    options = start.options
    due: Any = None if options.delay is None else after(options.delay)
    if options.scheduled_at is not None:
        due = literal(options.scheduled_at, Timestamp)
    first = now() if due is None else due
    given = (options.until, options.deadline)
    limits: list[Any] = [literal(one, Timestamp) for one in given if isinstance(one, dt.datetime)]
    if isinstance(options.deadline, float):
        limits.append(later(first, options.deadline))
    published = options.is_published(grace)
    look = later(first, grace if published else 0.0 if due is None else -LEAD)
    deadline = _least(limits) if limits else None
    ring_at = look if deadline is None else _least([look, deadline])
    return {"due_at": due, "deadline_at": deadline, "ring_at": ring_at, "rings": int(published) - 1}


def _least(times: list[Any]) -> Any:
    """The `min` of SQLite takes several values."""
    return times[0] if len(times) == 1 else func.min(*times, type_=Timestamp())


def _label_on_sqlite(connection: Connection, start: Start, created: set[str]) -> None:
    for name, value in (start.options.labels or {}).items() if created else ():
        its_row = select(runs.c.id, literal(name), literal(value), runs.c.created_at).where(runs.c.id.in_(created))
        connection.execute(insert(labels).from_select(["run_id", "name", "value", "created_at"], its_row))
