"""The WHERE clauses of all transitions, and the conversion of rows to values, shared by the parts of the store."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Row,
    Update,
    and_,
    case,
    func,
    insert,
    literal,
    or_,
    select,
    true,
    update,
)

from rival_client.db.guards import run_can, step_can
from rival_client.db.locks import shares_run
from rival_client.db.run_tables import attempts, in_status, runs, steps
from rival_client.db.types import after, now, one_of
from rival_client.model import statuses
from rival_client.model.payload import Json
from rival_client.model.starts.queues import Route, ServedQueues
from rival_client.model.statuses import RUN_TERMINAL
from rival_client.model.timers import EARLY, NextLook, backoff
from rival_client.sql.recovery import chosen as chosen
from rival_workers.store.claim_records import NO_FACTS, Claim, Expired, NotYet, RunFacts, WorkflowVersion
from rival_workers.store.sweep_records import Due, RunningAttempt, SweepOptions

ATTEMPT_COLUMNS = (
    steps.c.execution_token,
    steps.c.attempts,
    steps.c.lost,
    steps.c.executor_id,
    steps.c.started_at,
    steps.c.policy,
)

#: Queue and level of a step's messages. `runs` is joined: a step inherits the level of its run.
STEP_ROUTE = (steps.c.queue, func.coalesce(steps.c.priority, runs.c.priority, 0).label("level"))

#: Finds running attempts through the running runs: see the indexes of the tables.
IN_FLIGHT = and_(
    one_of(steps.c.run_id, select(runs.c.id).where(in_status(statuses.RUNNING))), steps.c.status == statuses.RUNNING
)
#: A step with the columns that identify its attempts; `runs` is joined.
NAMED = (
    select(
        steps.c.run_id,
        steps.c.path,
        steps.c.execution_token,
        steps.c.status,
        steps.c.attempts,
        steps.c.lost,
        steps.c.executor_id,
        runs.c.workflow,
        runs.c.version,
        steps.c.kind,
        *STEP_ROUTE,
    )
    .select_from(steps)
    .join(runs, runs.c.id == steps.c.run_id)
)
RUNNING = NAMED.add_columns(steps.c.deadline_at, now().label("now")).where(IN_FLIGHT)


def running_of(row: Any) -> RunningAttempt:
    claim = Claim(row.run_id, row.path, row.execution_token)
    named = (row.workflow, row.version, row.kind)
    left = seconds_until(row.deadline_at, row.now)
    return RunningAttempt(claim, row.attempts, row.lost, row.executor_id, *named, Route(row.queue, row.level), left)


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


def leave_running(
    connection: Connection, claim: Claim, verb: str, status: str, values: Mapping[str, Any], *columns: Any
) -> tuple[Row[Any] | None, list[int]]:
    """Move the step out of `running`. Returns its row and the slots that it used, which the caller releases at the end
    of the transaction (`rival_client.sql.gates`). None: stale. A step without slots needs no further statement."""
    leaves = step_leaves_running(claim, verb, status).values(values)
    if verb == "expire_step":
        # A step of a paused run expires when the run is resumed.
        leaves = leaves.where(~steps.c.paused)
    # An update that has waited for another transaction keeps the row locked, also if its guard does not match any more:
    # so the lock of the run comes first, within the statement.
    plain = leaves.where(shares_run(connection, claim.run_id), steps.c.slots.is_(None))
    row = connection.execute(plain.returning(*columns)).first()
    if row is not None:
        return row, []
    # Stale, or the step has slots.
    used = connection.scalar(select(steps.c.slots).where(guard(claim, verb)).with_for_update())
    if not used:
        return None, []
    return connection.execute(leaves.values(slots=None).returning(*columns)).one(), list(used)


def step_starts(claim: Claim, executor: str, timeout: float | None, policy: str | None = None) -> Update:
    """Start a new attempt of a step, under the guard of a claim. `policy`: the options that fleet rules changed."""
    limit = attempt_limit(timeout)
    return (
        update(steps)
        .where(guard(claim, "claim_step"))
        .values(
            status=statuses.RUNNING,
            attempts=steps.c.attempts + 1,
            executor_id=executor,
            started_at=now(),
            execution_token=steps.c.execution_token + 1,
            timeout_token=steps.c.timeout_token + 1,
            timeout_at=limit,
            ring_at=limit,
            rings=0,
            parked=None,
            start_by=None,
            policy=None if policy is None else Json(policy),
        )
    )


def is_of(of: WorkflowVersion | None) -> ColumnElement[bool]:
    """The run has the workflow and version that a message names."""
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
        .values(status=statuses.RUNNING, started_at=now(), token=runs.c.token + 1, ring_at=runs.c.deadline_at, rings=0)
        .values(parked=None)
    )


def may_begin_now() -> ColumnElement[bool]:
    """The run is due, and its deadline has not passed."""
    is_due = or_(runs.c.due_at.is_(None), runs.c.due_at <= after(EARLY))
    return and_(is_due, or_(runs.c.deadline_at.is_(None), runs.c.deadline_at > now()))


def run_goes_on(run_id: str, of: WorkflowVersion | None = None) -> Any:
    """The run has not ended and is not paused."""
    return (
        select(true())
        .where(runs.c.id == run_id, runs.c.status.not_in(RUN_TERMINAL), runs.c.paused_at.is_(None), is_of(of))
        .exists()
    )


def wrong_moment(
    connection: Connection, run_id: str, token: int, of: WorkflowVersion | None
) -> NotYet | Expired | None:
    """NotYet for a run that could begin at another time."""
    row = connection.execute(
        select(runs.c.due_at, runs.c.deadline_at, now().label("now")).where(
            runs.c.id == run_id, runs.c.token == token, run_can("begin_run"), runs.c.paused_at.is_(None), is_of(of)
        )
    ).first()
    if row is None:
        return None
    if row.deadline_at is not None and row.deadline_at <= row.now:
        return Expired()
    return None if row.due_at is None else NotYet((row.due_at - row.now).total_seconds())


def any_is_past(times: Any) -> ColumnElement[bool]:
    """True if the earliest time of a column has come. Written with min(), Postgres reads one end of the index; for an
    EXISTS it may read the whole table while it has no statistics on rows inserted lately."""
    earliest: ColumnElement[Any] = select(func.min(times)).scalar_subquery()
    return earliest <= now()


def attempt_limit(timeout: float | None) -> Any:
    """When an attempt that starts now times out. Without a timeout, the deadline is the only limit."""
    return steps.c.deadline_at if timeout is None else earliest(after(timeout), steps.c.deadline_at)


def after_or_never(seconds: float | None) -> Any:
    return None if seconds is None else after(seconds)


def due_of(row: Row[Any]) -> Due:
    """The last seven columns of the row: route, times (converted to seconds from now), and whether it has expired."""
    queue, level, due_at, start_by, deadline_at, at, expired = tuple(row)[-7:]
    limits = (seconds_until(start_by, at), seconds_until(deadline_at, at))
    due_in, route = seconds_until(due_at, at) or 0.0, Route(queue, level or 0)
    fields: tuple[Any, ...] = (*tuple(row)[:-7], due_in, bool(expired), route, *limits)
    return Due(*fields)


def route_of(step: Any, run_level: int) -> Route:
    """`step`: a row with queue and priority."""
    return Route(step.queue, run_level if step.priority is None else step.priority)


def seconds_until(time: Any, at: Any) -> float | None:
    return None if time is None else float((time - at).total_seconds())


def earliest(time: Any, *limits: Any) -> Any:
    """The earliest of a time and of limits that may be null. (A CASE: on SQLite, min() of a null is null.)"""
    for limit in limits:
        time = case((and_(limit.is_not(None), limit < time), limit), else_=time)
    return time


def earlier_limit() -> Any:
    """The first of the step's own time limits; null if it has none."""
    start_by, deadline = steps.c.start_by, steps.c.deadline_at
    return case((start_by.is_(None), deadline), else_=earliest(start_by, deadline))


def in_time() -> ColumnElement[bool]:
    """The step may still start: neither its queue timeout nor its deadline has passed."""
    return and_(*(or_(limit.is_(None), limit > now()) for limit in (steps.c.start_by, steps.c.deadline_at)))


def is_served(served: ServedQueues) -> ColumnElement[bool]:
    """True if a worker that serves these queues may run the step."""
    if served.every:
        return true()
    named = steps.c.queue.in_(served.names)
    return or_(steps.c.queue.is_(None), named) if None in served else named


def facts_of(run: Any) -> RunFacts:
    """`run`: a row with labels, deadline_at, error, priority and the time of the database."""
    level = run.priority or 0
    if run.deadline_at is None or run.error is not None:
        plain = run.labels is None and run.policies is None and not level
        return NO_FACTS if plain else RunFacts(run.labels, level=level, policies=run.policies)
    left = (run.deadline_at - run.now).total_seconds()
    return RunFacts(run.labels, run.deadline_at, left, level, run.policies)


FACTS = (runs.c.labels, runs.c.deadline_at, runs.c.error, runs.c.priority, runs.c.policies, now().label("now"))


def next_look(look: NextLook, *limits: Any) -> dict[str, Any]:
    """The columns that say when the keeper looks at the row, at the latest at the first of the limits."""
    return {"ring_at": earliest(after(look.seconds), *limits), "rings": look.rings}


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
            policy=step.policy,
            ended_at=now(),
        )
    )
