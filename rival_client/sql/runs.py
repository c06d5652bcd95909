"""The statements that start, cancel, pause and resume runs. They take an open connection and never commit."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, Text, bindparam, delete, or_, select, text, update
from sqlalchemy.dialects import sqlite

from rival_client.broker.message import StepMessage
from rival_client.db.guards import run_can, step_can
from rival_client.db.locks import lock_run
from rival_client.db.prepared import Statement
from rival_client.db.tables import after, now, runs, steps, waits
from rival_client.errors import RunConflict
from rival_client.model.json_match import same
from rival_client.model.kinds import COMPOSITE_KINDS
from rival_client.model.payload import Json, load
from rival_client.model.records import WorkflowInfo
from rival_client.model.timers import first_rings
from rival_client.model.transitions import run_sources
from rival_client.sql import orphans
from rival_client.sql.history import record

#: One statement for one run or a thousand.
_INSERT_RUNS = """
INSERT INTO rival_runs (id, workflow, version, status, input, ring_at, rings, created_at)
SELECT r.id, :workflow, :version, 'pending', CAST(r.input AS json),
       clock_timestamp() + make_interval(secs => CAST(:grace AS double precision)),
       CASE WHEN :grace = 0 THEN -1 ELSE 0 END, clock_timestamp()
FROM unnest(CAST(:ids AS text[]), CAST(:inputs AS text[])) AS r(id, input)
ON CONFLICT (id) DO NOTHING
RETURNING id
"""
_INSERT_RUNS_POSTGRES = text(_INSERT_RUNS)
#: The same in psycopg's own form, so that it can join a psycopg transaction.
INSERT_RUNS_PSYCOPG = re.sub(r":(\w+)", r"%(\1)s", _INSERT_RUNS)
#: The input as text: a producer's connection may have loaders of its own for JSON (Django's has).
SELECT_EXISTING_PSYCOPG = "SELECT id, workflow, input::text FROM rival_runs WHERE id = ANY(%(ids)s)"
#: Every start of a single run uses it.
INSERT_RUN = Statement.of(
    "rival_insert_run",
    """
INSERT INTO rival_runs (id, workflow, version, status, input, ring_at, created_at)
VALUES (%(id)s, %(workflow)s, %(version)s, 'pending', %(input)s::json, now() + make_interval(secs => %(grace)s), now())
ON CONFLICT (id) DO NOTHING
RETURNING 1
""",
)


def insert_parameters(workflow: WorkflowInfo, inputs: Mapping[str, Json], grace: float) -> dict[str, Any]:
    return {
        "workflow": workflow.name,
        "version": workflow.version,
        "grace": grace,
        # Sorted: of two inserts with ids in common, one waits for the other, and never each for the other.
        "ids": sorted(inputs),
        "inputs": [str(inputs[run_id]) for run_id in sorted(inputs)],
    }


def insert_runs(connection: Connection, workflow: WorkflowInfo, inputs: Mapping[str, Json], grace: float) -> set[str]:
    """Insert the runs that do not exist yet; returns the ids that were inserted. `grace` 0: only the keeper
    publishes them."""
    if connection.dialect.name == "postgresql":
        return set(connection.scalars(_INSERT_RUNS_POSTGRES, insert_parameters(workflow, inputs, grace)))
    given = [{"id": run_id, "given_input": str(its_input)} for run_id, its_input in inputs.items()]
    return set(connection.scalars(_insert_on_sqlite(workflow, grace), given)) if given else set()


def _insert_on_sqlite(workflow: WorkflowInfo, grace: float) -> Any:
    # As text: a producer's own engine has a JSON serialiser of its own, which would make a string of it again.
    return (
        sqlite.insert(runs)
        .values(
            id=bindparam("id"),
            workflow=workflow.name,
            version=workflow.version,
            status="pending",
            input=bindparam("given_input", type_=Text),
            created_at=now(),
            ring_at=after(grace),
            rings=first_rings(grace),
        )
        .on_conflict_do_nothing()
        .returning(runs.c.id)
    )


def existing_inputs(connection: Connection, run_ids: Sequence[str]) -> list[tuple[str, str, Any]]:
    """(id, workflow, input) of the runs that are there already."""
    found = connection.execute(select(runs.c.id, runs.c.workflow, runs.c.input).where(runs.c.id.in_(run_ids)))
    return [(row.id, row.workflow, row.input) for row in found]


def refuse_conflicts(workflow: str, inputs: Mapping[str, Json], existing: Iterable[tuple[str, str, Any]]) -> None:
    """Starting the same thing twice is fine; starting another thing under the same id is not."""
    for run_id, its_workflow, its_input in existing:
        if its_workflow != workflow:
            raise RunConflict(run_id, f"of workflow {its_workflow!r}, not {workflow!r}")
        if not same(its_input, load(inputs[run_id])):
            raise RunConflict(run_id, "with another input")


# -- cancelling -------------------------------------------------------------------------------------------


def cancel_run(connection: Connection, run_id: str, by: str) -> bool:
    """False: it had ended already. Its children are entered as orphans, to be cancelled in their own transactions."""
    cancelled = end_as_cancelled(connection, run_id, by)
    leave_orphans(connection, run_id, by, cancelled)
    return cancelled


def end_as_cancelled(connection: Connection, run_id: str, by: str) -> bool:
    """Cancel the run and its open steps. False: it had ended already."""
    if lock_run(connection, run_id).status not in run_sources("cancel_run"):
        return False
    paths = _cancel_steps(connection, run_id)
    connection.execute(
        update(runs)
        .where(runs.c.id == run_id, run_can("cancel_run"))
        .values(status="cancelled", completed_at=now(), ring_at=None, token=runs.c.token + 1)
    )
    connection.execute(delete(waits).where(waits.c.run_id == run_id))
    record(connection, run_id, None, "cancelled", by=by, open=paths)
    return True


def _cancel_steps(connection: Connection, run_id: str) -> list[str]:
    ended = {"status": "cancelled", "completed_at": now(), "ring_at": None, "timeout_at": None}
    tokens = {name: steps.c[name] + 1 for name in ("execution_token", "timeout_token")}
    cancelled = update(steps).where(steps.c.run_id == run_id, step_can("cancel_run")).values(**ended, **tokens)
    return sorted(connection.scalars(cancelled.returning(steps.c.path)), reverse=True)


def leave_orphans(connection: Connection, run_id: str, by: str, cancelled: bool) -> None:
    """The run is not an orphan any more; if it was cancelled now, its children are. These locks are the last ones."""
    orphans.delete_orphan(connection, run_id)
    if cancelled:
        orphans.leave_all(connection, run_id, by)


# -- pausing ----------------------------------------------------------------------------------------------
#
# When `pause` has returned, nothing of the run starts: no step, no retry, no lane, and a flow does not continue after
# its next checkpoint. Running steps end, and their outcome is committed; if that was the last step, the run ends.


def pause_run(connection: Connection, run_id: str, by: str) -> bool:
    """False: it has ended, or was paused already."""
    lock_run(connection, run_id)
    paused = connection.execute(
        update(runs)
        .where(runs.c.id == run_id, run_can("pause_run"), runs.c.paused_at.is_(None))
        .values(paused_at=now())
    )
    if paused.rowcount == 0:
        return False
    _mark_steps(connection, run_id, True)
    record(connection, run_id, None, "paused", by=by)
    return True


def resume_run(connection: Connection, run_id: str, by: str, grace: float) -> list[StepMessage] | None:
    """The messages to publish now that the run continues. None: it was not paused."""
    lock_run(connection, run_id)
    resumed = connection.execute(
        update(runs)
        .where(runs.c.id == run_id, run_can("resume_run"), runs.c.paused_at.is_not(None))
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
    """The steps whose messages had no effect while the run was paused."""
    found = connection.execute(
        update(steps)
        .where(steps.c.run_id == run_id, step_can("claim_step"), steps.c.kind.not_in(COMPOSITE_KINDS))
        .where(steps.c.ring_at.is_not(None), or_(steps.c.due_at.is_(None), steps.c.due_at <= now()))
        .values(ring_at=after(grace), rings=0)
        .returning(steps.c.path, steps.c.execution_token, steps.c.attempts, steps.c.lost)
    )
    return [
        StepMessage(run_id, row.path, row.execution_token, workflow, version, row.attempts + 1, row.lost)
        for row in found
    ]


def _mark_steps(connection: Connection, run_id: str, paused: bool) -> None:
    """A transition that waited for the lock of a step reads the mark, and starts nothing after the step."""
    still_open = (steps.c.run_id == run_id, steps.c.completed_at.is_(None))
    connection.execute(update(steps).where(*still_open).values(paused=paused))
