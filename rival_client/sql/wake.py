"""Wakes steps and runs that wait, and suspends runs of which every open step waits. The caller commits, then publishes.

The caller holds the shared lock of the run (`rival_client.db.locks`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Row, select, true, update

from rival_client.broker.message import StepMessage
from rival_client.db.guards import run_can, step_can
from rival_client.db.run_tables import runs, steps
from rival_client.db.types import after
from rival_client.model import history_entries as entries
from rival_client.model import statuses
from rival_client.model.kinds import WITH_LANES
from rival_client.model.starts.queues import USUAL_ROUTE, Route
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
