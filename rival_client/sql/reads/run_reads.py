"""The statements that read runs: one, a step of it, its result. They take an open connection."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, select

from rival_client.db.prepared_statement import Row, Statement
from rival_client.db.run_tables import attempts, runs, steps
from rival_client.errors import RunNotEnded, RunNotFound
from rival_client.model import payload, statuses
from rival_client.model.kinds import RESULT_KINDS
from rival_client.model.records import Run, RunResult
from rival_client.model.statuses import RUN_TERMINAL
from rival_client.model.step_records import Attempt, Step
from rival_client.sql.reads.run_records import attempt_of, run_fields, run_of, step_of

READ_STATUS = Statement.of("rival_read_status", "SELECT workflow, status FROM rival_runs WHERE id = %(id)s")
#: Every poll of a `wait` uses it: the steps of a run that has not ended are not read.
READ_RESULT = Statement.of(
    "rival_read_result",
    f"""
    SELECT run.workflow, run.status, run.result, run.error, run.failed_step,
           CASE WHEN run.completed_at IS NOT NULL THEN (
               SELECT json_agg(json_build_array(step.path, step.result) ORDER BY step.created_at, step.path)
               FROM rival_steps AS step
               WHERE step.run_id = run.id AND step.kind IN ({", ".join(f"'{kind}'" for kind in RESULT_KINDS)})
                 AND step.status IN ('completed', 'skipped') AND step.path NOT LIKE '%[%') END
    FROM rival_runs AS run WHERE run.id = %(id)s
    """,
)


def read_run(connection: Connection, run_id: str) -> Run:
    row = connection.execute(select(runs).where(runs.c.id == run_id)).mappings().first()
    if row is None:
        raise RunNotFound(run_id)
    return run_of(row)


def read_run_head(connection: Connection, run_id: str) -> Run:
    """Without input and result, which may be large."""
    columns = [column for column in runs.columns if column.name not in ("input", "result")]
    row = connection.execute(select(*columns).where(runs.c.id == run_id)).mappings().first()
    if row is None:
        raise RunNotFound(run_id)
    return Run(**{"input": None, "result": None, **run_fields(row)})


def read_status(connection: Connection, run_id: str) -> tuple[str, str] | None:
    """(workflow, status): what a poll asks, and nothing more."""
    row = connection.execute(select(runs.c.workflow, runs.c.status).where(runs.c.id == run_id)).first()
    return (row.workflow, row.status) if row else None


def read_step(connection: Connection, run_id: str, path: str) -> Step | None:
    rows = connection.execute(select(steps).where(steps.c.run_id == run_id, steps.c.path == path)).mappings()
    return next((step_of(r) for r in rows), None)


def read_attempts(connection: Connection, run_id: str, path: str, limit: int) -> list[Attempt]:
    """The newest attempts of one step that did not simply succeed, the oldest of them first."""
    its = select(attempts).where(attempts.c.run_id == run_id, attempts.c.path == path)
    newest = connection.execute(its.order_by(attempts.c.token.desc()).limit(limit)).mappings().all()
    return [attempt_of(row) for row in reversed(newest)]


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


def result_of(run_id: str, row: Row) -> RunResult:
    """From a row of READ_RESULT; RunNotEnded when the run has not ended."""
    workflow, status, result, error, failed_step, results = row
    if status not in RUN_TERMINAL:
        raise RunNotEnded(run_id, str(workflow), str(status))
    return RunResult(
        run_id=run_id,
        workflow=str(workflow),
        status=status,  # type: ignore[arg-type]
        result=payload.load(result),
        results=dict(payload.load(results) or ()),
        error=payload.load(error),
        failed_step=failed_step,
    )


def _results(connection: Connection, run_id: str) -> dict[str, Any]:
    """The results of steps and composites, without those of single iterations of a composite."""
    found = connection.execute(
        select(steps.c.path, steps.c.result)
        .where(
            steps.c.run_id == run_id,
            steps.c.kind.in_(RESULT_KINDS),
            steps.c.status.in_((statuses.COMPLETED, statuses.SKIPPED)),
            steps.c.path.not_like("%[%"),
        )
        .order_by(steps.c.created_at, steps.c.path)
    )
    return {row.path: row.result for row in found}
