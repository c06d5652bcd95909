"""Waking what waits: a step whose event has come, a flow whose child has ended. Within somebody's transaction; whoever
commits rings after.

The caller has the shared lock of the run (`rival_client.db.locks`); of a parent, it is taken here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, and_, null, or_, select, true, update

from rival_client.broker.message import StepMessage
from rival_client.db.locks import share_run
from rival_client.db.tables import after, now, runs, scalar_text, steps
from rival_client.sql.history import record


@dataclass(frozen=True)
class ReadyStep:
    """A step that waited and need not any more."""

    run_id: str
    path: str
    token: int
    workflow: str
    version: str

    @property
    def message(self) -> StepMessage:
        return StepMessage(self.run_id, self.path, self.token, self.workflow, self.version)


def wake(connection: Connection, run_id: str, path: str, grace: float, by: str, **values: Any) -> ReadyStep | None:
    """A waiting step may start now, thanks to `by`. None: it does not wait."""
    step = connection.execute(
        update(steps)
        .where(steps.c.run_id == run_id, steps.c.path == path, steps.c.status == "waiting")
        .values(
            status="pending", due_at=None, ring_at=after(grace), rings=0,
            execution_token=steps.c.execution_token + 1, **values,
        )
        .returning(steps.c.execution_token)
    ).first()  # fmt: skip
    if step is None:
        return None
    record(connection, run_id, path, "resumed", by=by, **values)
    resume_run_status(connection, run_id)
    run = connection.execute(select(runs.c.workflow, runs.c.version).where(runs.c.id == run_id)).one()
    return ReadyStep(run_id, path, step.execution_token, run.workflow, run.version)


def resume_run_status(connection: Connection, run_id: str) -> None:
    connection.execute(update(runs).where(runs.c.id == run_id, runs.c.status == "suspended").values(status="running"))


def suspend_run_status(connection: Connection, run_id: str, path: str) -> str | None:
    """The run waits as a whole, if the step can have no other open beside it. Among parallel lanes it may: to know,
    all of them would have to be looked at whenever one of them ends. There the run stays `running`.

    Its new status, if it has one.
    """
    stops = update(runs).where(runs.c.id == run_id, runs.c.status == "running")
    if above := _composites_above(path):
        lanes = select(true()).where(
            steps.c.run_id == run_id, steps.c.path.in_(above), steps.c.kind.in_(("parallel", "for_each"))
        )
        stops = stops.where(~lanes.exists())
    return "suspended" if connection.execute(stops.values(status="suspended")).rowcount == 1 else None


def _composites_above(path: str) -> list[str]:
    """`a/lines[3]/pack` → `a`, `a/lines`."""
    parts = path.split("/")[:-1]
    return ["/".join([*parts[:depth], part.partition("[")[0]]) for depth, part in enumerate(parts)]


def end_checkpoint(
    connection: Connection, run_id: str, path: str, grace: float, *, by: str, result: Any = None,
    error: dict[str, Any] | None = None, child: str | None = None,
) -> ReadyStep | None:  # fmt: skip
    """What a flow waits for has come: its checkpoint ends, and the flow may go on. A `child` must be the one that is
    waited for: an earlier one's place may have been taken since."""
    status = "failed" if error else "completed"
    the_one = true() if child is None else or_(steps.c.item.is_(null()), scalar_text(steps.c.item) == child)
    ended = connection.execute(
        update(steps)
        .where(steps.c.run_id == run_id, steps.c.path == path, steps.c.status == "waiting", the_one)
        .values(
            status=status, result=result, error=error, completed_at=now(), ring_at=None,
            execution_token=steps.c.execution_token + 1,
        )
    )  # fmt: skip
    if ended.rowcount == 0:
        return None
    record(connection, run_id, path, status, by=by, result=result, error=error)
    return wake(connection, run_id, _flow_of(connection, run_id, path), grace, by)


def _flow_of(connection: Connection, run_id: str, checkpoint: str) -> str:
    """A checkpoint's name may have slashes of its own: that of a topic `orders/paid`."""
    above, _, _ = checkpoint.rpartition("/")
    parts = above.split("/")
    if len(parts) == 1:
        return above
    paths = ["/".join(parts[:count]) for count in range(1, len(parts) + 1)]
    its_flow = select(steps.c.path).where(steps.c.run_id == run_id, steps.c.path.in_(paths), steps.c.kind == "flow")
    return connection.scalar(its_flow) or above


def wake_parent(connection: Connection, run_id: str, grace: float) -> ReadyStep | None:
    """Whoever has waited for this run, which has just ended, may go on."""
    run = connection.execute(
        select(
            runs.c.parent_run_id, runs.c.parent_path, runs.c.status, runs.c.result, runs.c.error, runs.c.failed_step
        ).where(runs.c.id == run_id, runs.c.parent_run_id.is_not(None))
    ).first()
    if run is None:
        return None
    error = child_error(run_id, run)
    share_run(connection, run.parent_run_id)
    ready: ReadyStep | None = None
    for path in _that_wait(connection, run, run_id):
        one = end_checkpoint(
            connection, run.parent_run_id, path, grace, by=f"run {run_id}", child=run_id,
            result=None if error else run.result, error=error,
        )  # fmt: skip
        ready = ready or one
    return ready


def _that_wait(connection: Connection, run: Any, child: str) -> list[str]:
    """The checkpoint that called the child; or those that wait for a spawned one, which are below its spawn."""
    path = run.parent_path
    if "spawn:" not in path:
        return [path]
    below = and_(steps.c.path > f"{path}/", steps.c.path < f"{path}0")
    its_own = (steps.c.status == "waiting", scalar_text(steps.c.item) == child)
    waiting = select(steps.c.path).where(steps.c.run_id == run.parent_run_id, below, *its_own)
    # All of them before the flow: a commit of the flow locks its open checkpoints in the same order.
    return list(connection.scalars(waiting.order_by(steps.c.path).with_for_update()))


def child_error(run_id: str, run: Any) -> dict[str, Any] | None:
    """What the parent is told of a child that has ended: None if it was completed. `run` None: it does not exist."""
    if run is None:
        return {"type": "UnknownRun", "message": f"child run {run_id!r} does not exist any more", "attempt": 1}
    if run.status == "completed":
        return None
    cancelled = {"type": "ChildCancelled", "message": f"child run {run_id!r} was cancelled", "attempt": 1}
    return {**cancelled, **(run.error or {}), "child_run": run_id, "child_step": run.failed_step}
