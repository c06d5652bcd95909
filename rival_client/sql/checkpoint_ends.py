"""Ends the checkpoints of flows that wait: for an event that has arrived, for a child that has ended. The caller
commits, then publishes.

The caller holds the shared lock of the run (`rival_client.db.locks`); `wake_parent` takes that of the parent.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, and_, null, or_, select, true, update

from rival_client.db.guards import step_can
from rival_client.db.locks import share_run
from rival_client.db.run_tables import runs, steps
from rival_client.db.types import now, scalar_text
from rival_client.model import statuses
from rival_client.model.kinds import FLOW
from rival_client.sql.history import record
from rival_client.sql.wake import ReadyStep, wake_step


@dataclass(frozen=True)
class Arrival:
    """What a flow waited for at a checkpoint: a result, or an error. `by`: where it comes from."""

    by: str
    result: Any = None
    error: dict[str, Any] | None = None
    #: The run that has ended. A checkpoint that has started another child since does not end.
    child: str | None = None

    @property
    def status(self) -> str:
        return statuses.FAILED if self.error else statuses.COMPLETED

    @property
    def values(self) -> dict[str, Any]:
        return {"status": self.status, "result": self.result, "error": self.error}


def end_checkpoint(connection: Connection, run_id: str, path: str, grace: float, arrival: Arrival) -> ReadyStep | None:
    """End the checkpoint at which a flow waits, and make the flow ready to continue. None: it does not wait there."""
    same_child = scalar_text(steps.c.item) == arrival.child
    fits = true() if arrival.child is None else or_(steps.c.item.is_(null()), same_child)
    ended = connection.execute(
        update(steps)
        .where(steps.c.run_id == run_id, steps.c.path == path, step_can("end_checkpoint"), fits)
        .values(**arrival.values, completed_at=now(), ring_at=None, execution_token=steps.c.execution_token + 1)
    )
    if ended.rowcount == 0:
        return None
    detail = {"result": arrival.result, "error": arrival.error}
    record(connection, run_id, path, arrival.status, by=arrival.by, **detail)
    return wake_step(connection, run_id, _flow_of(connection, run_id, path), grace, arrival.by)


def _flow_of(connection: Connection, run_id: str, checkpoint: str) -> str:
    """The path of the checkpoint's flow. A checkpoint's name can contain slashes: a topic `orders/paid`."""
    above, _, _ = checkpoint.rpartition("/")
    parts = above.split("/")
    if len(parts) == 1:
        return above
    paths = ["/".join(parts[:count]) for count in range(1, len(parts) + 1)]
    its_flow = select(steps.c.path).where(steps.c.run_id == run_id, steps.c.path.in_(paths), steps.c.kind == FLOW)
    return connection.scalar(its_flow) or above


def wake_parent(connection: Connection, run_id: str, grace: float) -> ReadyStep | None:
    """Wake the step of the parent that waits for this run, which has just ended."""
    columns = (runs.c.parent_run_id, runs.c.parent_path, runs.c.status, runs.c.result, runs.c.error, runs.c.failed_step)
    run = connection.execute(select(*columns).where(runs.c.id == run_id, runs.c.parent_run_id.is_not(None))).first()
    if run is None:
        return None
    error = child_error(run_id, run)
    arrival = Arrival(f"run {run_id}", None if error else run.result, error, child=run_id)
    share_run(connection, run.parent_run_id)
    ready: ReadyStep | None = None
    for path in _waiting_checkpoints(connection, run, run_id):
        one = end_checkpoint(connection, run.parent_run_id, path, grace, arrival)
        ready = ready or one
    return ready


def _waiting_checkpoints(connection: Connection, run: Any, child: str) -> list[str]:
    """The checkpoint that called the child; of a spawned child, the waits for it, which are below its spawn."""
    path = run.parent_path
    if "spawn:" not in path:
        return [path]
    below = and_(steps.c.path > f"{path}/", steps.c.path < f"{path}0")
    same_child = scalar_text(steps.c.item) == child
    waiting = select(steps.c.path).where(
        steps.c.run_id == run.parent_run_id, below, step_can("end_checkpoint"), same_child
    )
    # Lock all of them before the flow: a commit of the flow locks its open checkpoints in the same order.
    return list(connection.scalars(waiting.order_by(steps.c.path).with_for_update()))


def child_error(run_id: str, run: Any) -> dict[str, Any] | None:
    """The error that the parent sees of an ended child: None if it was completed. `run` None: it does not exist."""
    if run is None:
        return {"type": "UnknownRun", "message": f"child run {run_id!r} does not exist any more", "attempt": 1}
    if run.status == statuses.COMPLETED:
        return None
    cancelled = {"type": "ChildCancelled", "message": f"child run {run_id!r} was cancelled", "attempt": 1}
    return {**cancelled, **(run.error or {}), "child_run": run_id, "child_step": run.failed_step}
