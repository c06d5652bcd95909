"""A run is paused and resumed: the statements. They take an open connection, never commit.

When `pause` has returned, nothing of the run starts: no step, no retry, no lane, and no flow goes on behind its next
checkpoint. What runs already ends, and its outcome is committed; if that was the last step, the run has ended.
"""

from __future__ import annotations

from sqlalchemy import Connection, or_, update

from rival_client.broker.message import StepMessage
from rival_client.db.locks import lock_run
from rival_client.db.tables import RUN_TERMINAL, after, now, runs, steps
from rival_client.model.records import COMPOSITE_KINDS
from rival_client.sql.history import record


def pause_run(connection: Connection, run_id: str, by: str) -> bool:
    """False: it has ended, or was paused already."""
    lock_run(connection, run_id)
    paused = connection.execute(
        update(runs)
        .where(runs.c.id == run_id, runs.c.status.not_in(RUN_TERMINAL), runs.c.paused_at.is_(None))
        .values(paused_at=now())
    )
    if paused.rowcount == 0:
        return False
    _mark_steps(connection, run_id, True)
    record(connection, run_id, None, "paused", by=by)
    return True


def resume_run(connection: Connection, run_id: str, by: str, grace: float) -> list[StepMessage] | None:
    """What must be rung, now that the run goes on. None: it was not paused."""
    lock_run(connection, run_id)
    resumed = connection.execute(
        update(runs)
        .where(runs.c.id == run_id, runs.c.status.not_in(RUN_TERMINAL), runs.c.paused_at.is_not(None))
        .values(paused_at=None)
        .returning(runs.c.workflow, runs.c.version, runs.c.status, runs.c.token)
    ).first()
    if resumed is None:
        return None
    _mark_steps(connection, run_id, False)
    record(connection, run_id, None, "resumed", by=by)
    if resumed.status == "pending":
        connection.execute(update(runs).where(runs.c.id == run_id).values(ring_at=after(grace), rings=0))
        return [StepMessage(run_id, None, resumed.token, resumed.workflow, resumed.version)]
    return _due(connection, run_id, resumed.workflow, resumed.version, grace)


def _due(connection: Connection, run_id: str, workflow: str, version: str, grace: float) -> list[StepMessage]:
    """The steps whose messages came while nobody took them."""
    found = connection.execute(
        update(steps)
        .where(
            steps.c.run_id == run_id, steps.c.status.in_(("pending", "waiting_retry", "waiting")),
            steps.c.ring_at.is_not(None), steps.c.kind.not_in(COMPOSITE_KINDS),
            or_(steps.c.due_at.is_(None), steps.c.due_at <= now()),
        )
        .values(ring_at=after(grace), rings=0)
        .returning(steps.c.path, steps.c.execution_token, steps.c.attempts, steps.c.lost)
    )  # fmt: skip
    return [
        StepMessage(run_id, row.path, row.execution_token, workflow, version, row.attempts + 1, row.lost)
        for row in found
    ]


def _mark_steps(connection: Connection, run_id: str, paused: bool) -> None:
    """A transition that waits for the row of a step finds the mark there, and starts nothing after it."""
    still_open = (steps.c.run_id == run_id, steps.c.completed_at.is_(None))
    connection.execute(update(steps).where(*still_open).values(paused=paused))
