"""Schedules meet the clock: a due one is claimed, its runs are inserted and its next tick is set in one transaction, so
that a tick has one run, however many keepers look.
"""

from __future__ import annotations

import logging
from typing import Any

from sqlalchemy import Connection, Row, select, update

from rival_client import runs as run_statements
from rival_client.database import Database
from rival_client.payload import Json, dump
from rival_client.records import WorkflowInfo
from rival_client.schedules import put_schedule, remove_own_schedule
from rival_client.tables import now, schedules
from rival_client.ticks import Planned, Rule, run_id_at, ticks_to_run
from rival_client.workflows import current_workflow
from rival_workers.store.base import Fired
from rival_workers.store.guards import any_is_past

log = logging.getLogger("rival.schedules")

_ANYTHING_DUE = select(any_is_past(schedules.c.next_at))


class Scheduling:
    database: Database
    ring_grace: float
    max_payload: int

    def keep_schedule(self, workflow: str, planned: Planned | None) -> None:
        """The workflow's own schedule is this one from now on; None: it has none. Others are left alone."""
        with self.database.transaction() as connection:
            if planned is None:
                remove_own_schedule(connection, workflow)
            else:
                put_schedule(connection, workflow, workflow, planned, own=True)

    def fire_schedules(self, limit: int) -> list[Fired]:
        """Start the runs of up to `limit` schedules whose time has come; the caller rings for them."""
        with self.database.autocommit() as connection:
            if not connection.scalar(_ANYTHING_DUE):
                return []
        due = (
            select(schedules, now().label("now"))
            .where(schedules.c.next_at <= now())
            # Those that could not be fired last time come last, lest they take up all the places.
            .order_by(schedules.c.error.is_not(None), schedules.c.next_at)
            .limit(limit)
            .with_for_update(skip_locked=True)
        )
        with self.database.transaction() as connection:
            return [fired for row in connection.execute(due).all() for fired in self._fire(connection, row)]

    def _fire(self, connection: Connection, row: Row[Any]) -> list[Fired]:
        rule = Rule(row.cron, row.every, row.timezone)
        try:
            ticks, following = ticks_to_run(rule, row.catch_up, row.next_at, row.now), rule.next_after(row.now)
            its_input = dump(row.input, what="its input", limit=self.max_payload)
        except Exception as error:
            # Written by a newer version, or with a time zone that this machine does not know: perhaps another does.
            return _leave(connection, row, f"{type(error).__name__}: {error}")
        workflow = current_workflow(connection, row.workflow)
        if workflow is None:
            return _leave(connection, row, f"there is no workflow {row.workflow!r}")
        moved = {"next_at": following, "error": None} | ({"last_at": ticks[-1]} if ticks else {})
        if not _move_on(connection, row, moved):
            return []
        return self._start(connection, workflow, {run_id_at(row.name, tick): its_input for tick in ticks})

    def _start(self, connection: Connection, workflow: WorkflowInfo, inputs: dict[str, Json]) -> list[Fired]:
        if not inputs:
            return []
        created = run_statements.insert_runs(connection, workflow, inputs, self.ring_grace)
        return [Fired(run_id, workflow.name, workflow.version) for run_id in inputs if run_id in created]


def _leave(connection: Connection, row: Row[Any], why: str) -> list[Fired]:
    """It stays due, and says why."""
    if row.error != why:
        log.error("schedule %s cannot be fired: %s", row.name, why)
        _move_on(connection, row, {"error": why})
    return []


def _move_on(connection: Connection, row: Row[Any], values: dict[str, Any]) -> bool:
    """False: somebody else has fired this very tick."""
    return (
        connection.execute(
            update(schedules).where(schedules.c.name == row.name, schedules.c.next_at == row.next_at).values(values)
        ).rowcount
        == 1
    )
