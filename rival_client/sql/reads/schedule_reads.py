"""The statements that read schedules: all of them, or one."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, RowMapping, Text, cast, select

from rival_client.db.fleet_tables import schedules
from rival_client.model.cron import Rule
from rival_client.model.payload import load
from rival_client.model.starts.planned_schedules import CatchUp


@dataclass(frozen=True)
class ScheduleRecord:
    """A schedule as it is now. `own`: the workflow's definition has it."""

    name: str
    workflow: str
    #: Either a cron expression in the time zone, or every so many seconds.
    cron: str | None
    every: int | None
    timezone: str
    catch_up: CatchUp
    input: Any
    own: bool
    #: None while it is paused.
    next_at: dt.datetime | None
    #: The latest tick that got a run.
    last_at: dt.datetime | None
    #: Why its last tick could not be fired.
    error: str | None
    created_at: dt.datetime
    #: Options of the start of its runs, such as labels.
    options: dict[str, Any] | None = None
    #: Since when, and by whom, it is paused: it starts no runs.
    paused_at: dt.datetime | None = None
    paused_by: str | None = None

    @property
    def rule(self) -> Rule:
        return Rule(self.cron, self.every, self.timezone)


def find_schedule(connection: Connection, name: str) -> ScheduleRecord | None:
    found = connection.execute(RECORDS.where(schedules.c.name == name)).mappings().first()
    return None if found is None else schedule_of(found)


def list_schedules(connection: Connection, workflow: str | None = None) -> list[ScheduleRecord]:
    statement = RECORDS.order_by(schedules.c.name)
    if workflow is not None:
        statement = statement.where(schedules.c.workflow == workflow)
    return [schedule_of(row) for row in connection.execute(statement).mappings()]


def read_schedule(connection: Connection, name: str) -> ScheduleRecord:
    return schedule_of(connection.execute(RECORDS.where(schedules.c.name == name)).mappings().one())


#: The input as text: SQLite keeps what is not JSON, and one row that cannot be parsed would fail the whole list.
RECORDS = select(
    *(column for column in schedules.c if column is not schedules.c.input),
    cast(schedules.c.input, Text).label("input"),
)


def schedule_of(row: RowMapping) -> ScheduleRecord:
    # The row of a paused schedule has a time that never comes.
    known = {**row, "next_at": None if row["paused_at"] else row["next_at"]}
    try:
        return ScheduleRecord(**{**known, "input": load(row["input"])})
    except ValueError as error:
        return ScheduleRecord(**{**known, "input": None, "error": f"its input is not JSON: {error}"})
