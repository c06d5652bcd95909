"""The statements that cancel, pause and resume runs. They take an open connection and never commit."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, Row, and_, delete, func, insert, or_, select, update

from rival_client.broker.message import StepMessage
from rival_client.db.event_tables import waits
from rival_client.db.guards import run_can, step_can
from rival_client.db.locks import lock_run
from rival_client.db.run_tables import runs, steps, workflows
from rival_client.db.types import after, now
from rival_client.model import history_entries as entries
from rival_client.model import statuses
from rival_client.model.kinds import CANCEL, COMPOSITE_KINDS, HANDLER
from rival_client.model.starts.queues import Route
from rival_client.model.transitions import run_sources
from rival_client.sql import orphans
from rival_client.sql.gates import leave
from rival_client.sql.history import record
from rival_client.sql.idempotency import end_ownership
from rival_client.sql.tickets import slots_of, unqueue, withdraw

# -- cancelling -------------------------------------------------------------------------------------------


def cancel_run(connection: Connection, run_id: str, by: str) -> bool:
    """False: it had ended already. Its children are entered as orphans, to be cancelled in their own transactions. If
    workers have to end it, keepers publish that."""
    begun = begin_cancel(connection, run_id, by, grace=0)
    slots = end_as_cancelled(connection, run_id, by) if begun is None else begun[0]
    conclude_cancel(connection, run_id, by, slots)
    return slots is not None


def begin_cancel(
    connection: Connection, run_id: str, by: str, grace: float, if_entry: int | None = None
) -> tuple[list[int], StepMessage] | None:
    """Cancel the open steps of a run that workers end: they undo its other steps, or call its hooks. Returns the slots
    that the steps have used, and the message for a worker. None: `end_as_cancelled` ends the run, or it has ended. It
    also ends a run that fails, or that is being cancelled, at once."""
    run = lock_run(connection, run_id, if_entry)
    if run.status not in run_sources("begin_cancel") or not _is_ended_by_workers(connection, run):
        return None
    slots = slots_of(connection, and_(steps.c.run_id == run_id, step_can("cancel_run")))
    paths = _cancel_steps(connection, run_id)
    error = {"type": "RunCancelled", "message": f"the run was cancelled by {by}", "by": by}
    failing = {"status": statuses.RUNNING, "error": error, "ring_at": None, "rings": 0}
    connection.execute(update(runs).where(runs.c.id == run_id, run_can("begin_cancel")).values(failing))
    connection.execute(delete(waits).where(waits.c.run_id == run_id))
    # As every new row: see `rival_workers.store.sql.open_rows`.
    row = {"run_id": run_id, "path": CANCEL, "kind": HANDLER, "status": statuses.PENDING, "queue": run.queue}
    tokens = dict.fromkeys(("execution_token", "timeout_token"), run.token - 1)
    connection.execute(insert(steps).values(**row, **tokens, created_at=now(), ring_at=after(grace)))
    record(connection, run_id, None, entries.CANCELLING, by=by, open=paths, error=error)
    record(connection, run_id, CANCEL, entries.SCHEDULED, by=by, kind=HANDLER, queue=run.queue)
    route = Route(run.queue, run.priority or 0)
    message = StepMessage(run_id, CANCEL, run.token - 1, run.workflow, run.version, route=route)
    return slots + withdraw(connection, run_id), message


def _is_ended_by_workers(connection: Connection, run: Row[Any]) -> bool:
    of_run = and_(workflows.c.name == runs.c.workflow, workflows.c.version == runs.c.version)
    found = connection.execute(select(workflows.c.policies, runs.c.error).join(runs, of_run).where(runs.c.id == run.id))
    row = found.first()
    return row is not None and row.error is None and (row.policies or {}).get("on_cancel") is not None


def end_as_cancelled(connection: Connection, run_id: str, by: str, if_entry: int | None = None) -> list[int] | None:
    """Cancel the run and its open steps. Returns the slots of limits that they have used; None: it had ended."""
    run = lock_run(connection, run_id, if_entry)
    if run.status not in run_sources("cancel_run"):
        return None
    slots = [*(run.slots or ()), *slots_of(connection, and_(steps.c.run_id == run_id, step_can("cancel_run")))]
    paths = _cancel_steps(connection, run_id)
    connection.execute(
        update(runs)
        .where(runs.c.id == run_id, run_can("cancel_run"))
        .values(status=statuses.CANCELLED, completed_at=now(), ring_at=None, token=runs.c.token + 1, slots=None)
    )
    connection.execute(delete(waits).where(waits.c.run_id == run_id))
    record(connection, run_id, None, entries.CANCELLED, by=by, open=paths)
    return slots + withdraw(connection, run_id)


def _cancel_steps(connection: Connection, run_id: str) -> list[str]:
    ended = {"status": statuses.CANCELLED, "completed_at": now(), "ring_at": None, "timeout_at": None, "slots": None}
    tokens = {name: steps.c[name] + 1 for name in ("execution_token", "timeout_token")}
    cancelled = update(steps).where(steps.c.run_id == run_id, step_can("cancel_run")).values(**ended, **tokens)
    return sorted(connection.scalars(cancelled.returning(steps.c.path)), reverse=True)


def conclude_cancel(connection: Connection, run_id: str, by: str, slots: list[int] | None) -> None:
    """The run is not an orphan any more; if it was cancelled now, its children are. These locks are the last ones,
    before those of the gates that it gives its slots back to. The keepers publish what is granted."""
    orphans.delete_orphan(connection, run_id)
    if slots is not None:
        orphans.leave_all(connection, run_id, by)
        end_ownership(connection, run_id, None, grace=0)
        leave(connection, slots, grace=0)


# -- pausing ----------------------------------------------------------------------------------------------
#
# When `pause` has returned, nothing of the run starts: no step, no retry, no lane, and a flow does not continue after
# its next checkpoint. Running steps end, and their outcome is committed; if that was the last step, the run ends.


def pause_run(connection: Connection, run_id: str, by: str, if_entry: int | None = None) -> bool:
    """False: it has ended, or was paused already."""
    lock_run(connection, run_id, if_entry)
    paused = connection.execute(
        update(runs)
        .where(runs.c.id == run_id, run_can("pause_run"), runs.c.paused_at.is_(None))
        .values(paused_at=now())
    )
    if paused.rowcount == 0:
        return False
    _mark_steps(connection, run_id, True)
    record(connection, run_id, None, entries.PAUSED, by=by)
    leave(connection, unqueue(connection, run_id, by, "paused"), grace=0)
    return True


def resume_run(
    connection: Connection, run_id: str, by: str, grace: float, if_entry: int | None = None
) -> list[StepMessage] | None:
    """The messages to publish now that the run continues. None: it was not paused."""
    lock_run(connection, run_id, if_entry)
    resumed = connection.execute(
        update(runs)
        .where(runs.c.id == run_id, run_can("resume_run"), runs.c.paused_at.is_not(None))
        .values(paused_at=None)
        .returning(
            runs.c.workflow,
            runs.c.version,
            runs.c.status,
            runs.c.token,
            runs.c.due_at,
            runs.c.queue,
            runs.c.priority,
            now().label("now"),
        )
    ).first()
    if resumed is None:
        return None
    _mark_steps(connection, run_id, False)
    record(connection, run_id, None, entries.RESUMED, by=by)
    if resumed.status == statuses.PENDING and resumed.due_at is not None and resumed.due_at > resumed.now:
        return []  # the keeper looks at it in time
    if resumed.status == statuses.PENDING:
        connection.execute(update(runs).where(runs.c.id == run_id).values(ring_at=after(grace), rings=0))
        route = Route(resumed.queue, resumed.priority or 0)
        return [StepMessage(run_id, None, resumed.token, resumed.workflow, resumed.version, route=route)]
    return _due(connection, run_id, resumed, grace)


def _due(connection: Connection, run_id: str, run: Row[Any], grace: float) -> list[StepMessage]:
    """The steps whose messages had no effect while the run was paused."""
    found = connection.execute(
        update(steps)
        .where(steps.c.run_id == run_id, step_can("claim_step"), steps.c.kind.not_in(COMPOSITE_KINDS))
        .where(steps.c.ring_at.is_not(None), or_(steps.c.due_at.is_(None), steps.c.due_at <= now()))
        .values(ring_at=after(grace), rings=0)
        .returning(
            steps.c.path,
            steps.c.execution_token,
            steps.c.attempts,
            steps.c.lost,
            steps.c.queue,
            func.coalesce(steps.c.priority, run.priority, 0).label("level"),
        )
    )
    named = (run.workflow, run.version)
    return [
        StepMessage(run_id, path, token, *named, attempts + 1, lost, route=Route(queue, level))
        for path, token, attempts, lost, queue, level in found
    ]


def _mark_steps(connection: Connection, run_id: str, paused: bool) -> None:
    """A transition that waited for the lock of a step reads the mark, and starts nothing after the step."""
    still_open = (steps.c.run_id == run_id, steps.c.completed_at.is_(None))
    connection.execute(update(steps).where(*still_open).values(paused=paused))
