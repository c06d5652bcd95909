"""The WHERE of every transition, and how rows become values: what the operations of a store share."""

from __future__ import annotations

from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, Update, and_, case, func, insert, literal, select, true, update

from rival_client.db.guards import run_can, step_can
from rival_client.db.tables import RUN_TERMINAL, after, attempts, in_status, now, one_of, runs, steps
from rival_client.model.timers import Look, backoff
from rival_client.sql.recovery import chosen as chosen
from rival_workers.store.interface import Claim, Due, RunningAttempt, SweepOptions, WorkflowVersion

ATTEMPT_COLUMNS = (
    steps.c.execution_token,
    steps.c.attempts,
    steps.c.lost,
    steps.c.executor_id,
    steps.c.started_at,
)

#: An attempt in flight is found through the running runs: see the tables' indexes.
IN_FLIGHT = and_(one_of(steps.c.run_id, select(runs.c.id).where(in_status("running"))), steps.c.status == "running")
RUNNING = (
    select(
        steps.c.run_id,
        steps.c.path,
        steps.c.execution_token,
        steps.c.attempts,
        steps.c.lost,
        steps.c.executor_id,
        runs.c.workflow,
        runs.c.version,
        steps.c.kind,
    )
    .join(runs, runs.c.id == steps.c.run_id)
    .where(IN_FLIGHT)
)


def running_of(row: Any) -> RunningAttempt:
    claim = Claim(row.run_id, row.path, row.execution_token)
    return RunningAttempt(claim, row.attempts, row.lost, row.executor_id, row.workflow, row.version, row.kind)


def guard(claim: Claim, verb: str) -> Any:
    """Token and status, always both."""
    return and_(
        steps.c.run_id == claim.run_id,
        steps.c.path == claim.path,
        steps.c[claim.guard] == claim.token,
        step_can(verb),
    )


def step_leaves_running(claim: Claim, verb: str, status: str) -> Update:
    return (
        update(steps)
        .where(guard(claim, verb))
        .values(
            status=status,
            execution_token=steps.c.execution_token + 1,
            timeout_token=steps.c.timeout_token + 1,
            timeout_at=None,
        )
    )


def is_of(of: WorkflowVersion | None) -> ColumnElement[bool]:
    """The run is one of the workflow and version that a message names."""
    return true() if of is None else and_(runs.c.workflow == of.workflow, runs.c.version == of.version)


def other_than(connection: Connection, run_id: str, of: WorkflowVersion | None) -> WorkflowVersion | None:
    """The run's own workflow and version, if a message names another."""
    if of is None:
        return None
    row = connection.execute(select(runs.c.workflow, runs.c.version).where(runs.c.id == run_id)).first()
    its_own = of if row is None else WorkflowVersion(row.workflow, row.version)
    return None if its_own == of else its_own


def run_leaves_pending(run_id: str, token: int, of: WorkflowVersion | None) -> Update:
    return (
        update(runs)
        .where(runs.c.id == run_id, runs.c.token == token, runs.c.paused_at.is_(None), is_of(of))
        .where(run_can("begin_run"))
        .values(status="running", started_at=now(), token=runs.c.token + 1, ring_at=None, rings=0, parked=None)
    )


def run_goes_on(run_id: str, of: WorkflowVersion | None = None) -> Any:
    """The run has not ended and is not paused."""
    return (
        select(true())
        .where(runs.c.id == run_id, runs.c.status.not_in(RUN_TERMINAL), runs.c.paused_at.is_(None), is_of(of))
        .exists()
    )


def any_is_past(times: Any) -> ColumnElement[bool]:
    """Whether the earliest of a column's times has come. Asked like this, Postgres looks at one end of the index; an
    EXISTS it may answer by reading the whole table, as long as it has no statistics of what was inserted lately.
    """
    earliest: ColumnElement[Any] = select(func.min(times)).scalar_subquery()
    return earliest <= now()


def after_or_never(seconds: float | None) -> Any:
    return None if seconds is None else after(seconds)


def due_of(row: Row[Any]) -> Due:
    due_in = 0.0 if row.due_at is None else (row.due_at - row.now).total_seconds()
    fields: tuple[Any, ...] = (*tuple(row)[:-2], due_in)
    return Due(*fields)


def next_look(look: Look) -> dict[str, Any]:
    """The columns that say when the keeper looks at the row."""
    return {"ring_at": after(look.seconds), "rings": look.rings}


def backed_off(rings: Any, options: SweepOptions) -> Any:
    """`timers.backoff` as a CASE, since SQLite may lack power()."""
    delays = [backoff(n, options.backoff, options.backoff_max) for n in range(12)]
    steps_up = ((rings <= n, after(literal(delay))) for n, delay in enumerate(delays))
    return case(*steps_up, else_=after(literal(options.backoff_max)))


def record_attempt(
    connection: Connection,
    claim: Claim,
    step: Row[Any],
    outcome: str,
    error: dict[str, Any] | None,
    attempt: int | None = None,
) -> None:
    connection.execute(
        insert(attempts).values(
            run_id=claim.run_id,
            path=claim.path,
            token=step.execution_token - 1,
            attempt=attempt or step.attempts,
            outcome=outcome,
            error=error,
            executor_id=step.executor_id,
            started_at=step.started_at,
            ended_at=now(),
        )
    )
