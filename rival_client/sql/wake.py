"""Wakes steps that wait: for an event that has arrived, for a child that has ended. The caller commits, then publishes.

The caller holds the shared lock of the run (`rival_client.db.locks`); `wake_parent` takes that of the parent.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Row, and_, null, or_, select, true, update

from rival_client.broker.message import StepMessage
from rival_client.db.guards import run_can, step_can
from rival_client.db.locks import share_run
from rival_client.db.run_tables import runs, steps
from rival_client.db.types import after, now, scalar_text
from rival_client.model import history_entries as entries
from rival_client.model import statuses
from rival_client.model.kinds import FLOW, WITH_LANES
from rival_client.model.queues import USUAL_ROUTE, Route
from rival_client.sql.history import record


@dataclass(frozen=True)
class ReadyStep:
    """A step that waited and can start now."""

    run_id: str
    path: str
    token: int
    workflow: str
    version: str
    route: Route = USUAL_ROUTE

    @property
    def message(self) -> StepMessage:
        return StepMessage(self.run_id, self.path, self.token, self.workflow, self.version, route=self.route)


def wake_step(connection: Connection, run_id: str, path: str, grace: float, by: str, **values: Any) -> ReadyStep | None:
    """Make a waiting step ready to start. None: it does not wait. `by`: the cause, for the history."""
    ready = {"status": statuses.PENDING, "due_at": None, "ring_at": after(grace), "rings": 0, **values}
    step = connection.execute(
        update(steps)
        .where(steps.c.run_id == run_id, steps.c.path == path, step_can("wake_step"))
        .values(**ready, execution_token=steps.c.execution_token + 1)
        .returning(steps.c.execution_token, steps.c.queue, steps.c.priority)
    ).first()
    if step is None:
        return None
    record(connection, run_id, path, entries.WOKEN, by=by, **values)
    wake_run(connection, run_id)
    return ready_step(connection, run_id, path, step)


def ready_step(connection: Connection, run_id: str, path: str, step: Row[Any]) -> ReadyStep:
    """`step`: token, queue and priority of its row."""
    columns = (runs.c.workflow, runs.c.version, runs.c.priority)
    run = connection.execute(select(*columns).where(runs.c.id == run_id)).one()
    level = run.priority if step.priority is None else step.priority
    route = Route(step.queue, level or 0)
    return ReadyStep(run_id, path, step.execution_token, run.workflow, run.version, route)


def wake_run(connection: Connection, run_id: str) -> None:
    connection.execute(update(runs).where(runs.c.id == run_id, run_can("wake_run")).values(status=statuses.RUNNING))


def suspend_run(connection: Connection, run_id: str, path: str) -> str | None:
    """Suspend the run if no other step can be open beside the given one. Returns the new status, if it has changed.

    Among parallel lanes other steps may be open: to know, each end of a lane would have to read all lanes. There the
    run stays `running`.
    """
    suspend = update(runs).where(runs.c.id == run_id, run_can("suspend_run"))
    if above := composites_above(path):
        lanes = select(true()).where(steps.c.run_id == run_id, steps.c.path.in_(above), steps.c.kind.in_(WITH_LANES))
        suspend = suspend.where(~lanes.exists())
    suspended = connection.execute(suspend.values(status=statuses.SUSPENDED)).rowcount == 1
    return statuses.SUSPENDED if suspended else None


def composites_above(path: str) -> list[str]:
    """`a/lines[3]/pack` → `a`, `a/lines`."""
    parts = path.split("/")[:-1]
    return ["/".join([*parts[:depth], part.partition("[")[0]]) for depth, part in enumerate(parts)]


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
