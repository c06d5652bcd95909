"""The statements that read runs: one, its steps, its result. They take an open connection."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from sqlalchemy import Connection, RowMapping, Select, select

from rival_client.db.prepared import Statement
from rival_client.db.tables import attempts, runs, steps
from rival_client.errors import RunNotEnded, RunNotFound
from rival_client.model.kinds import RESULT_KINDS
from rival_client.model.records import Attempt, LastError, Run, RunResult, RunState, Step
from rival_client.sql.folded_steps import Overview

#: Every poll of a `wait` uses it.
READ_STATUS = Statement.of("rival_read_status", "SELECT workflow, status FROM rival_runs WHERE id = %(id)s")


def read_run(connection: Connection, run_id: str) -> Run:
    row = connection.execute(select(runs).where(runs.c.id == run_id)).mappings().first()
    if row is None:
        raise RunNotFound(run_id)
    return run_of(row)


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
        **_run_fields(run),
        steps=[_with_last_error(_step(s), failed.get(s["path"])) for s in its_steps],
        attempts=its_attempts,
        folded=folded,
    )


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


def _steps_of(run_id: str) -> Select[Any]:
    return select(steps).where(steps.c.run_id == run_id).order_by(steps.c.created_at, steps.c.path)


# -- rows to records --------------------------------------------------------------------------------------


def run_of(row: RowMapping) -> Run:
    return Run(**_run_fields(row))


def _run_fields(row: RowMapping) -> dict[str, Any]:
    left_out = ("id", "token", "ring_at", "rings")
    return {"run_id": row["id"]} | {name: value for name, value in row.items() if name not in left_out}


def _step(row: RowMapping) -> Step:
    left_out = (
        "run_id",
        "execution_token",
        "timeout_token",
        "executor_id",
        "ring_at",
        "rings",
        "state",
        "end_order",
        "begun_after",
        "paused",
    )
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
