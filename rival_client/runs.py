"""The statements a producer needs: start, read, list and cancel runs. They take an open connection, never commit."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    FromClause,
    RowMapping,
    Select,
    Text,
    and_,
    func,
    insert,
    literal,
    select,
    text,
    tuple_,
    type_coerce,
    union_all,
    update,
)
from sqlalchemy.dialects import sqlite
from sqlalchemy.dialects.postgresql import JSONB

from rival_client import orphans
from rival_client.errors import RunConflict, RunNotEnded, RunNotFound
from rival_client.hotline import Statement
from rival_client.overview import Overview
from rival_client.payload import Json, load, serialise
from rival_client.records import (
    COMPOSITES,
    Attempt,
    HistoryEntry,
    LastError,
    Run,
    RunResult,
    RunState,
    Step,
    WorkflowInfo,
)
from rival_client.tables import (
    RUN_TERMINAL,
    STEP_TERMINAL,
    after,
    attempts,
    executors,
    history,
    now,
    runs,
    steps,
    workflows,
)

#: The kinds of rows that a person would call a step.
RESULT_KINDS = ("step", "wait", *COMPOSITES)

#: One statement for one run or a thousand.
_INSERT_RUNS = """
INSERT INTO rival_runs (id, workflow, version, status, input, ring_at, rings, created_at)
SELECT r.id, :workflow, :version, 'pending', CAST(r.input AS jsonb),
       clock_timestamp() + make_interval(secs => CAST(:grace AS double precision)),
       CASE WHEN :grace = 0 THEN -1 ELSE 0 END, clock_timestamp()
FROM unnest(CAST(:ids AS text[]), CAST(:inputs AS text[])) AS r(id, input)
ON CONFLICT (id) DO NOTHING
RETURNING id
"""
_INSERT_RUNS_POSTGRES = text(_INSERT_RUNS)
#: The same in psycopg's own form, so that it can join a psycopg transaction.
INSERT_RUNS_PSYCOPG = re.sub(r":(\w+)", r"%(\1)s", _INSERT_RUNS)
#: The input as text: a producer's connection may have loaders of its own for JSON (Django's has).
SELECT_EXISTING_PSYCOPG = "SELECT id, workflow, input::text FROM rival_runs WHERE id = ANY(%(ids)s)"


#: What every start and every poll of a wait asks, for the hot line.
INSERT_RUN = Statement.of(
    "rival_insert_run",
    """
INSERT INTO rival_runs (id, workflow, version, status, input, ring_at, created_at)
VALUES (%(id)s, %(workflow)s, %(version)s, 'pending', %(input)s::jsonb, now() + make_interval(secs => %(grace)s), now())
ON CONFLICT (id) DO NOTHING
RETURNING 1
""",
)
READ_STATUS = Statement.of("rival_read_status", "SELECT workflow, status FROM rival_runs WHERE id = %(id)s")


def insert_parameters(workflow: WorkflowInfo, inputs: Mapping[str, Json], grace: float) -> dict[str, Any]:
    return {
        "workflow": workflow.name,
        "version": workflow.version,
        "grace": grace,
        "ids": list(inputs),
        "inputs": [str(value) for value in inputs.values()],
    }


def insert_runs(connection: Connection, workflow: WorkflowInfo, inputs: Mapping[str, Json], grace: float) -> set[str]:
    """Insert the runs that do not exist yet; the ids of those that were inserted. `grace` 0: nobody will ring for
    them, the keeper must."""
    if connection.dialect.name == "postgresql":
        return set(connection.scalars(_INSERT_RUNS_POSTGRES, insert_parameters(workflow, inputs, grace)))
    created: set[str] = set()
    # As text: a producer's own engine has a JSON serialiser of its own, which would make a string of it again.
    for run_id, its_input in inputs.items():
        statement = (
            sqlite.insert(runs)
            .values(
                id=run_id, workflow=workflow.name, version=workflow.version, status="pending",
                input=literal(str(its_input), Text), created_at=now(), ring_at=after(grace),
                rings=-1 if grace == 0 else 0,
            )
            .on_conflict_do_nothing()
            .returning(runs.c.id)
        )  # fmt: skip
        created.update(connection.scalars(statement))
    return created


def existing_inputs(connection: Connection, run_ids: Sequence[str]) -> list[tuple[str, str, Any]]:
    """(id, workflow, input) of the runs that are there already."""
    found = connection.execute(select(runs.c.id, runs.c.workflow, runs.c.input).where(runs.c.id.in_(run_ids)))
    return [(row.id, row.workflow, row.input) for row in found]


def refuse_conflicts(workflow: str, inputs: Mapping[str, Json], existing: Iterable[tuple[str, str, Any]]) -> None:
    """Starting the same thing twice is fine; starting another thing under the same id is not."""
    for run_id, its_workflow, its_input in existing:
        if its_workflow != workflow:
            raise RunConflict(run_id, f"of workflow {its_workflow!r}, not {workflow!r}")
        if not _same(its_input, load(inputs[run_id])):
            raise RunConflict(run_id, "with another input")


def _same(one: Any, other: Any) -> bool:
    """Equal as JSON: Python holds True and 1 to be equal, JSON does not; both hold 1 and 1.0 to be."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_same, one, other))
    return isinstance(one, bool) == isinstance(other, bool) and bool(one == other)


# -- reading ----------------------------------------------------------------------------------------------


def current_workflow(connection: Connection, name: str) -> WorkflowInfo | None:
    row = connection.execute(
        select(workflows)
        .where(workflows.c.name == name)
        .order_by(workflows.c.activated_at.desc(), workflows.c.version)
        .limit(1)
    ).mappings()
    return next((_workflow(r) for r in row), None)


def workflow_version(connection: Connection, name: str, version: str) -> WorkflowInfo | None:
    rows = connection.execute(
        select(workflows).where(workflows.c.name == name, workflows.c.version == version)
    ).mappings()
    return next((_workflow(r) for r in rows), None)


def list_workflows(connection: Connection) -> list[WorkflowInfo]:
    newest: dict[str, WorkflowInfo] = {}
    for row in connection.execute(
        select(workflows).order_by(workflows.c.name, workflows.c.activated_at.desc(), workflows.c.version)
    ).mappings():
        newest.setdefault(row["name"], _workflow(row))
    return list(newest.values())


def list_versions(connection: Connection, name: str) -> list[WorkflowInfo]:
    """Of one workflow, the one that new runs take first."""
    found = connection.execute(
        select(workflows).where(workflows.c.name == name).order_by(workflows.c.activated_at.desc(), workflows.c.version)
    ).mappings()
    return [_workflow(row) for row in found]


def workflow_names(connection: Connection) -> list[str]:
    return list(connection.scalars(select(workflows.c.name).distinct()))


def read_run(connection: Connection, run_id: str) -> Run:
    row = connection.execute(select(runs).where(runs.c.id == run_id)).mappings().first()
    if row is None:
        raise RunNotFound(run_id)
    return Run(**_run_fields(row))


def read_status(connection: Connection, run_id: str) -> tuple[str, str] | None:
    """(workflow, status): what a poll asks, and nothing more."""
    row = connection.execute(select(runs.c.workflow, runs.c.status).where(runs.c.id == run_id)).first()
    return (row.workflow, row.status) if row else None


def read_step(connection: Connection, run_id: str, path: str) -> Step | None:
    rows = connection.execute(select(steps).where(steps.c.run_id == run_id, steps.c.path == path)).mappings()
    return next((_step(r) for r in rows), None)


def read_state(connection: Connection, run_id: str, fold: int | None = None) -> RunState:
    """With `fold`: without results and items, and composites of more turns than that only counted."""
    run = connection.execute(select(runs).where(runs.c.id == run_id)).mappings().first()
    if run is None:
        raise RunNotFound(run_id)
    tried = select(attempts).where(attempts.c.run_id == run_id).order_by(attempts.c.ended_at, attempts.c.token)
    folded: dict[str, dict[str, int]] = {}
    if fold is None:
        its_steps = connection.execute(_steps_of(run_id)).mappings().all()
    else:
        seen = Overview(connection, run_id, fold)
        its_steps, folded, tried = seen.rows, seen.folded, tried.where(seen.shows(attempts.c.path))
    its_attempts = [_attempt(row) for row in connection.execute(tried).mappings()]
    failed = {attempt.path: attempt for attempt in its_attempts if attempt.error is not None}
    return RunState(
        **_run_fields(run), steps=[_with_last_error(_step(s), failed.get(s["path"])) for s in its_steps],
        attempts=its_attempts, folded=folded,
    )  # fmt: skip


def _with_last_error(step: Step, failed: Attempt | None) -> Step:
    """From the step's last attempt that failed. A composite makes no attempts: its error is that of a step below."""
    error, at = (step.error, step.completed_at) if failed is None else (failed.error, failed.ended_at)
    if error is None or at is None:
        return step
    attempt = error.get("attempt", 1) if failed is None else failed.attempt
    return replace(step, last_error=LastError(error.get("type", "Error"), error.get("message", ""), attempt, at))


def read_result(connection: Connection, run_id: str) -> RunResult:
    run = read_run(connection, run_id)
    if not run.is_terminal:
        raise RunNotEnded(run_id, run.workflow, run.status)
    return RunResult(
        run_id=run_id,
        workflow=run.workflow,
        status=run.status,  # type: ignore[arg-type]
        result=run.result,
        results=_results(connection, run_id),
        error=run.error,
        failed_step=run.failed_step,
    )


def _results(connection: Connection, run_id: str) -> dict[str, Any]:
    """Those of steps and composites, but not of each of the turns that a repeated one has taken."""
    found = connection.execute(
        select(steps.c.path, steps.c.result)
        .where(
            steps.c.run_id == run_id,
            steps.c.kind.in_(RESULT_KINDS),
            steps.c.status.in_(("completed", "skipped")),
            steps.c.path.not_like("%[%"),
        )
        .order_by(steps.c.created_at, steps.c.path)
    )
    return {row.path: row.result for row in found}


def read_history(connection: Connection, run_id: str) -> list[HistoryEntry]:
    found = connection.execute(select(history).where(history.c.run_id == run_id).order_by(history.c.id))
    return [HistoryEntry(r.at, r.what, r.path, r.detail or {}) for r in found]


def list_runs(
    connection: Connection,
    *,
    workflow: str | None = None,
    status: str | Sequence[str] | None = None,
    since: dt.datetime | None = None,
    until: dt.datetime | None = None,
    input: Mapping[str, Any] | None = None,
    before: Run | None = None,
    limit: int = 50,
) -> list[Run]:
    """The newest runs first; `before` is the last run of the page before this one."""
    statement = _newest(select(runs), runs, limit)
    if workflow is not None:
        statement = statement.where(runs.c.workflow == workflow)
    if since is not None:
        statement = statement.where(runs.c.created_at >= since)
    if until is not None:
        statement = statement.where(runs.c.created_at < until)
    if before is not None:
        statement = statement.where(tuple_(runs.c.created_at, runs.c.id) < (before.created_at, before.run_id))
    if input:
        statement = _with_input(statement, connection, input)
    if status is not None:
        statement = _with_status(statement, (status,) if isinstance(status, str) else tuple(status), limit)
    return [Run(**_run_fields(row)) for row in connection.execute(statement).mappings()]


def _newest(statement: Select[Any], table: FromClause, limit: int) -> Select[Any]:
    return statement.order_by(table.c.created_at.desc(), table.c.id.desc()).limit(limit)


def _with_status(statement: Select[Any], wanted: tuple[str, ...], limit: int) -> Select[Any]:
    """Of several statuses, the newest of each and then of all: the index has each of them in order, but not their
    mixture."""
    parts = [statement.where(runs.c.status == status).subquery() for status in wanted]
    if len(parts) == 1:
        return statement.where(runs.c.status == wanted[0])
    together = union_all(*(select(part) for part in parts)).subquery()
    return _newest(select(together), together, limit)


def count_live_executors(connection: Connection) -> int:
    return connection.scalar(select(func.count()).select_from(executors).where(executors.c.expires_at > now())) or 0


def _with_input(statement: Select[Any], connection: Connection, wanted: Mapping[str, Any]) -> Select[Any]:
    if connection.dialect.name == "postgresql":
        return statement.where(type_coerce(runs.c.input, JSONB).contains(dict(wanted)))
    return statement.where(and_(*(_sqlite_holds(f'$."{key}"', value) for key, value in wanted.items())))


def _sqlite_holds(path: str, value: Any) -> ColumnElement[bool]:
    """Kind and value, since SQLite gives true and 1, null and nothing as the same value."""
    wanted = serialise(value)
    return and_(
        func.json_type(runs.c.input, path) == func.json_type(wanted),
        func.json_extract(runs.c.input, path).is_not_distinct_from(func.json_extract(wanted, "$")),
    )


def _steps_of(run_id: str) -> Select[Any]:
    return select(steps).where(steps.c.run_id == run_id).order_by(steps.c.created_at, steps.c.path)


# -- cancelling -------------------------------------------------------------------------------------------


class LockedRun:
    """A run and all its open steps, locked in the one order that every transition keeps: steps from the leaves
    up, then the run. Steps are only ever added by a transition of an open step or of a pending run, so once all
    of those are locked the set cannot change; `settled` says whether it had changed before that.
    """

    def __init__(self, connection: Connection, run_id: str) -> None:
        self.paths = list(connection.scalars(_open_paths(run_id).with_for_update()))
        row = connection.execute(
            select(runs.c.workflow, runs.c.status, runs.c.token).where(runs.c.id == run_id).with_for_update()
        ).first()
        if row is None:
            raise RunNotFound(run_id)
        self.workflow, self.status = row.workflow, row.status
        # Only a look: a step that is new since may be locked by a finish that waits for this very run.
        self.settled = list(connection.scalars(_open_paths(run_id))) == self.paths


def _open_paths(run_id: str) -> Select[Any]:
    # Descending paths put "a/b" before "a": descendants before ancestors.
    return (
        select(steps.c.path)
        .where(steps.c.run_id == run_id, steps.c.status.not_in(STEP_TERMINAL))
        .order_by(steps.c.path.desc())
    )


def cancel_run(connection: Connection, run_id: str, by: str) -> bool | None:
    """True: cancelled now. False: it had ended already. None: the run moved; roll back and try again. Its children
    are entered as orphans, for whoever cancels them."""
    locked = LockedRun(connection, run_id)
    if locked.status in RUN_TERMINAL:
        orphans.forget(connection, run_id)
        return False
    if not locked.settled:
        return None
    connection.execute(
        update(steps)
        .where(steps.c.run_id == run_id, steps.c.status.not_in(STEP_TERMINAL))
        .values(
            status="cancelled", completed_at=now(), ring_at=None, timeout_at=None,
            execution_token=steps.c.execution_token + 1, timeout_token=steps.c.timeout_token + 1,
        )
    )  # fmt: skip
    connection.execute(
        update(runs)
        .where(runs.c.id == run_id, runs.c.status.not_in(RUN_TERMINAL))
        .values(status="cancelled", completed_at=now(), ring_at=None, token=runs.c.token + 1)
    )
    record(connection, run_id, None, "cancelled", {"by": by, "open": locked.paths})
    orphans.forget(connection, run_id)
    orphans.leave_all(connection, run_id, by)
    return True


def record(
    connection: Connection, run_id: str, path: str | None, what: str, detail: Mapping[str, Any] | None = None
) -> None:
    """Append to the run's history."""
    connection.execute(insert(history).values(run_id=run_id, path=path, what=what, detail=dict(detail or {}), at=now()))


# -- rows to records --------------------------------------------------------------------------------------


def _workflow(row: RowMapping) -> WorkflowInfo:
    fields = {name: value for name, value in row.items() if name not in ("activated_at", "retention")}
    return WorkflowInfo(**fields)


def _run_fields(row: RowMapping) -> dict[str, Any]:
    left_out = ("id", "token", "ring_at", "rings")
    return {"run_id": row["id"]} | {name: value for name, value in row.items() if name not in left_out}


def _step(row: RowMapping) -> Step:
    left_out = ("run_id", "execution_token", "timeout_token", "executor_id", "ring_at", "rings", "state")
    fields = {name: value for name, value in row.items() if name not in left_out}
    return Step(**{"result": None, **fields}, state=row["state"] or {}, executor=row["executor_id"])


def _attempt(row: RowMapping) -> Attempt:
    return Attempt(
        path=row["path"],
        attempt=row["attempt"],
        outcome=row["outcome"],
        error=row["error"],
        executor=row["executor_id"],
        started_at=row["started_at"],
        ended_at=row["ended_at"],
    )
