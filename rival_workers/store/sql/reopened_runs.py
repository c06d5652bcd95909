"""The rows that a retry or rewind changes: the run, the rows that wait again, and the children concerned. This module
only finds children that must be retried with their parent; the caller retries them.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Sequence
from typing import Any

from sqlalchemy import Connection, Interval, Text, and_, case, func, literal_column, select, update

from rival_client.db.guards import run_can, step_can
from rival_client.db.run_tables import runs, steps
from rival_client.db.types import now
from rival_client.errors import NotPossible, RivalError
from rival_client.model import statuses
from rival_client.model.kinds import CHILD_RESULT, FLOW, FLOW_WAIT
from rival_client.model.transitions import run_sources
from rival_client.sql.fleet_rules import read_rulebook
from rival_client.sql.workflows import workflow_at, workflow_version
from rival_workers.engine.policies import Policies, load_policies
from rival_workers.engine.rewind_flows import culprits_of
from rival_workers.engine.rewind_plan import Revived, RewindPlan, Row
from rival_workers.store.sql.locks import change_locked

#: Number of paths per statement.
_CHUNK = 500


#: A run that has ended is not paused any more when it is reopened.
_STILL_PAUSED = case((runs.c.completed_at.is_(None), runs.c.paused_at), else_=None)


#: A deadline that has passed is renewed with the duration that the run had at its start.
RENEWED_DEADLINE = case(
    (runs.c.deadline_at <= now(), now() + literal_column("(deadline_at - coalesce(due_at, created_at))", Interval())),
    else_=runs.c.deadline_at,
)


#: The singleton key whose place the run has when it is reopened. One that left its place to a start with "cancel" takes
#: it again. One that has not begun waits until it begins.
_OF_BEGUN = case((runs.c.started_at.is_not(None), literal_column("(rival_runs.policies ->> 'singleton')", Text())))
_PLACE = func.coalesce(runs.c.singleton, _OF_BEGUN)


def refuse_taken_place(connection: Connection, run_id: str, verb: str) -> None:
    """Raise NotPossible if another open run holds the run's singleton place."""
    other: Any = runs.alias("other")
    same = and_(other.c.workflow == runs.c.workflow, other.c.singleton == _PLACE, other.c.id != runs.c.id)
    is_it = (runs.c.id == run_id, same, other.c.completed_at.is_(None))
    holder = connection.execute(select(other.c.id, other.c.singleton).where(*is_it)).first()
    if holder is not None:
        why = f"run {holder.id!r} has its singleton place {holder.singleton!r}: wait for its end, or cancel it"
        raise NotPossible(verb, run_id, why)


def in_chunks(paths: Sequence[str]) -> Iterable[Sequence[str]]:
    return (paths[begin : begin + _CHUNK] for begin in range(0, len(paths), _CHUNK))


def highest_token(connection: Connection, run_id: str, paths: Sequence[str]) -> int:
    highest = select(func.max(steps.c.execution_token), func.max(steps.c.timeout_token))
    found = (
        connection.execute(highest.where(steps.c.run_id == run_id, steps.c.path.in_(part))).one()
        for part in in_chunks(paths)
    )
    return max((token or 0 for row in found for token in row), default=0)


def carried_inputs(connection: Connection, run_id: str, cut: RewindPlan, rewound: str | None) -> dict[str, Any]:
    """Inputs of flows that keep their checkpoints, from their last continue_as. The rewound flow is not among them."""
    flows = [one.path for one in cut.opens if one.kind == FLOW and one.path != rewound]
    columns = select(steps.c.path, steps.c.item).where(steps.c.run_id == run_id)
    found = (row for part in in_chunks(flows) for row in connection.execute(columns.where(steps.c.path.in_(part))))
    return {row.path: row.item for row in found if row.item is not None}


def open_run(connection: Connection, run_id: str, at_least: int) -> None:
    token = connection.scalar(select(runs.c.token).where(runs.c.id == run_id)) or 0
    reopened = (
        update(runs)
        .where(runs.c.id == run_id, runs.c.token == token, run_can("rewind_run"))
        .values(
            status=statuses.RUNNING,
            token=max(token + 1, at_least),
            result=None,
            error=None,
            failed_step=None,
            completed_at=None,
            deadline_at=RENEWED_DEADLINE,
            ring_at=RENEWED_DEADLINE,
            rings=0,
            retries=0,
            parked=None,
            paused_at=_STILL_PAUSED,
            singleton=_PLACE,
        )
    )
    change_locked(connection, reopened, f"run {run_id!r}")


def revive_steps(connection: Connection, run_id: str, revived: Iterable[Revived]) -> None:
    # A flow enters its wait for an event again when it reaches it: it knows the topics.
    status = case((steps.c.kind == FLOW_WAIT, statuses.PENDING), else_=statuses.WAITING)
    again = {
        "status": status,
        "completed_at": None,
        "result": None,
        "error": None,
        "execution_token": steps.c.execution_token + 1,
    }
    of_run = (steps.c.run_id == run_id, step_can("revive_step"))
    one_by_one = [one for one in revived if one.total is not None]
    plain = [one.path for one in revived if one.total is None]
    for part in in_chunks(plain):
        connection.execute(update(steps).where(*of_run, steps.c.path.in_(part)).values(again))
    for one in one_by_one:
        counts = {"total": one.total, "opened": one.opened, "remaining": one.remaining}
        connection.execute(update(steps).where(*of_run, steps.c.path == one.path).values({**again, **counts}))


# -- children -----------------------------------------------------------------------------------------------


def children_of(connection: Connection, run_id: str, deleted: Sequence[str]) -> tuple[str, ...]:
    """The children that the rewound steps started."""
    found = connection.execute(
        select(runs.c.id, runs.c.parent_path)
        .where(runs.c.parent_run_id == run_id)
        .order_by(runs.c.created_at, runs.c.id)
    )
    gone = set(deleted)
    return tuple(row.id for row in found if row.parent_path in gone)


def children_to_retry(connection: Connection, run: Any, deleted: Sequence[str]) -> tuple[str, ...]:
    """Spawned children that were cancelled with their parent, and those whose failures its flow would receive again. A
    child of `ctx.call` is not among them: its checkpoint is deleted, and the flow starts another child."""
    found = connection.execute(
        select(runs.c.id, runs.c.parent_path, runs.c.status, runs.c.completed_at)
        .where(runs.c.parent_run_id == run.id, runs.c.status.in_(run_sources("retry_run")))
        .order_by(runs.c.created_at, runs.c.id)
    ).all()
    gone = set(deleted)
    spawned = [one for one in found if one.parent_path not in gone]
    failures = _received_failures(connection, run.id, gone) if spawned else set()
    return tuple(one.id for one in spawned if one.id in failures or _was_cancelled_with(one, run))


def _was_cancelled_with(child: Any, run: Any) -> bool:
    """A parent is cancelled first; its open children are cancelled after that commit."""
    return bool(run.status == child.status == statuses.CANCELLED and child.completed_at >= run.completed_at)


def _received_failures(connection: Connection, run_id: str, deleted: set[str]) -> set[str]:
    """The children whose failures the deleted checkpoints received."""
    found = connection.execute(
        select(steps.c.path, steps.c.item).where(
            steps.c.run_id == run_id, steps.c.kind == CHILD_RESULT, steps.c.status == statuses.FAILED
        )
    )
    return {row.item for row in found if row.path in deleted and isinstance(row.item, str)}


# -- what it is planned from ----------------------------------------------------------------------------------


def policies_of(connection: Connection, run: Any, at: dt.datetime | None = None) -> Policies:
    """The policies of the run's version as registered now, or as they were `at` a time."""
    its = run.workflow, run.version
    info = workflow_version(connection, *its) if at is None else workflow_at(connection, *its, at)
    if info is None:
        raise RivalError(f"Version {run.version} of workflow {run.workflow!r} is no longer in the database.")
    return load_policies(info.name, info.plan, info.policies)


def ruled_policies(connection: Connection, run: Any) -> Policies:
    """With the rules of the run and those of the fleet now."""
    return policies_of(connection, run).over(run.policies, read_rulebook(connection), run.labels)


def rows_of(connection: Connection, run_id: str) -> list[Row]:
    """Lock and read all steps of the run. A claim, a retry or a takeover changes one row without the lock of the run;
    after this, none of them can interfere between the plan, its history entry and the rows."""
    columns = (
        steps.c.path,
        steps.c.kind,
        steps.c.status,
        steps.c.started_at,
        steps.c.end_order,
        steps.c.begun_after,
        steps.c.opened,
        case((steps.c.kind == FLOW, steps.c.error), else_=None).label("error"),
    )
    wanted = select(*columns).where(steps.c.run_id == run_id).order_by(steps.c.created_at, steps.c.path)
    return [_row(one) for one in connection.execute(wanted.with_for_update())]


def _row(row: Any) -> Row:
    return Row(
        row.path,
        row.kind,
        row.status,
        row.started_at is not None,
        row.end_order,
        row.begun_after,
        row.opened,
        culprits_of(row.error),
    )
