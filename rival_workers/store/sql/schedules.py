"""Fires due schedules: one transaction locks the schedule, inserts its runs and sets its next tick, so a tick has one
run with any number of keepers.
"""

from __future__ import annotations

import logging
from typing import Any

from sqlalchemy import Connection, Row, Select, Text, cast, func, select, update
from sqlalchemy.exc import SQLAlchemyError

from rival_client.db.database_errors import translated
from rival_client.db.fleet_tables import schedules
from rival_client.db.types import now
from rival_client.errors import DatabaseBusy, DatabaseUnavailable
from rival_client.model.cron import Rule
from rival_client.model.payload import dump, load
from rival_client.model.starts.planned_schedules import Planned, run_id_at, ticks_to_run
from rival_client.model.starts.start_options import StartOptions
from rival_client.model.starts.starts import Start
from rival_client.sql.run_inserts import insert_or_queue
from rival_client.sql.schedules import put_schedule, remove_own_schedule
from rival_client.sql.workflows import current_workflow
from rival_workers.store.sql.guards import any_is_past
from rival_workers.store.sql.part import StorePart
from rival_workers.store.sweep_records import Fired

log = logging.getLogger("rival.schedules")

_ANYTHING_DUE = select(any_is_past(schedules.c.next_at))
_COLUMNS = (
    schedules.c.name,
    schedules.c.workflow,
    schedules.c.cron,
    schedules.c.every,
    schedules.c.timezone,
    schedules.c.catch_up,
    schedules.c.next_at,
    schedules.c.error,
    schedules.c.options,
    # Read as text: SQLite stores invalid JSON, and one row that cannot be parsed would fail the whole select.
    cast(schedules.c.input, Text).label("input"),
    now().label("now"),
)
#: Number of schedules tried again per round after they could not be fired.
_AGAIN = 50


class SchedulesSql(StorePart):
    def keep_schedule(self, workflow: str, planned: Planned | None) -> None:
        """Make this the workflow's own schedule; None removes it. Schedules of producers are left alone."""
        with self.database.transaction() as connection:
            if planned is None:
                remove_own_schedule(connection, workflow)
            else:
                put_schedule(connection, workflow, workflow, planned, own=True)

    def fire_schedules(self, limit: int) -> list[Fired]:
        """Start the runs of up to `limit` due schedules, and of some that could not be fired before. The caller
        publishes the messages."""
        with self.database.autocommit() as connection:
            if not connection.scalar(_ANYTHING_DUE):
                return []
        with self.database.transaction() as connection:
            found = [*connection.execute(_due(limit)).all(), *connection.execute(_due_again()).all()]
            return [fired for row in found for fired in self._fire_or_leave(connection, row)]

    def _fire_or_leave(self, connection: Connection, row: Row[Any]) -> list[Fired]:
        """Fire the schedule in a savepoint, so that an invalid schedule does not prevent the ticks of the others."""
        try:
            with connection.begin_nested():
                return self._fire(connection, row)
        except SQLAlchemyError as error:
            refused = translated(self.database.url, error)
            if isinstance(refused, DatabaseUnavailable | DatabaseBusy):
                raise
            return _leave(connection, row, str(refused))
        except Exception as error:
            # The row was written by a newer version, or has a time zone that this machine does not know; another
            # machine may.
            return _leave(connection, row, f"{type(error).__name__}: {error}")

    def _fire(self, connection: Connection, row: Row[Any]) -> list[Fired]:
        rule = Rule(row.cron, row.every, row.timezone)
        ticks, following = ticks_to_run(rule, row.catch_up, row.next_at, row.now), rule.next_after(row.now)
        its_input = dump(load(row.input), what="its input", limit=self.max_payload)
        workflow = current_workflow(connection, row.workflow)
        if workflow is None:
            return _leave(connection, row, f"unknown workflow {row.workflow!r}")
        moved = {"next_at": following, "error": None} | ({"last_at": ticks[-1]} if ticks else {})
        if not _move_on(connection, row, moved):
            return []
        inputs = {run_id_at(row.name, tick): its_input for tick in ticks}
        return self._start(connection, Start(workflow, inputs, StartOptions.of_schedule(row.options or {})))

    def _start(self, connection: Connection, start: Start) -> list[Fired]:
        if not start.inputs:
            return []
        created = insert_or_queue(connection, start, self.ring_grace)
        workflow = start.workflow
        named = (workflow.name, workflow.version, start.route)
        return [Fired(run_id, *named) for run_id in start.inputs if run_id in created]


def _due(limit: int) -> Select[Any]:
    due = select(*_COLUMNS).where(schedules.c.next_at <= now(), schedules.c.error.is_(None))
    return due.order_by(schedules.c.next_at).limit(limit).with_for_update(skip_locked=True)


def _due_again() -> Select[Any]:
    """Some schedules that could not be fired before, chosen at random so that each is tried, however many there are."""
    due = select(*_COLUMNS).where(schedules.c.next_at <= now(), schedules.c.error.is_not(None))
    return due.order_by(func.random()).limit(_AGAIN).with_for_update(skip_locked=True)


def _leave(connection: Connection, row: Row[Any], why: str) -> list[Fired]:
    """Leave the schedule due and store the reason."""
    if row.error != why:
        log.error("schedule %s cannot be fired: %s", row.name, why)
        _move_on(connection, row, {"error": why})
    return []


def _move_on(connection: Connection, row: Row[Any], values: dict[str, Any]) -> bool:
    """False: another keeper has fired this tick."""
    return (
        connection.execute(
            update(schedules).where(schedules.c.name == row.name, schedules.c.next_at == row.next_at).values(values)
        ).rowcount
        == 1
    )
