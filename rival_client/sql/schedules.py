"""Schedules: rows that say what is to be started when. A producer writes them, the workers' keepers fire them."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, RowMapping, Text, and_, case, cast, delete, or_, select, true, update
from sqlalchemy.dialects import postgresql, sqlite

from rival_client.db.fleet_tables import PAUSED_UNTIL, schedules
from rival_client.db.run_tables import workflows
from rival_client.db.types import now
from rival_client.errors import RivalError
from rival_client.model.cron import Rule
from rival_client.model.payload import load
from rival_client.model.planned_schedules import CatchUp, Planned


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
    next_at: dt.datetime
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


def refuse_taken(connection: Connection, name: str) -> None:
    """Refuse the name of a workflow: it is reserved for the workflow's own schedule."""
    if connection.scalar(select(true()).where(workflows.c.name == name).limit(1)):
        raise RivalError(f"The schedule cannot be named {name!r}: that is the name of a workflow. Choose another name.")


def put_schedule(connection: Connection, name: str, workflow: str, planned: Planned, *, own: bool = False) -> None:
    """Add it, or change it. While its rule stays the same it goes on where it was: what it has missed is not lost."""
    dialect: Any = postgresql if connection.dialect.name == "postgresql" else sqlite
    rule = planned.rule
    statement = dialect.insert(schedules).values(
        name=name,
        workflow=workflow,
        cron=rule.cron,
        every=rule.every,
        timezone=rule.timezone,
        catch_up=planned.catch_up,
        input=planned.input,
        options=planned.options.given,
        own=own,
        created_at=now(),
        next_at=rule.next_after(connection.scalar(select(now())) or dt.datetime.now(dt.UTC)),
    )
    new = statement.excluded
    same = and_(
        schedules.c.cron.is_not_distinct_from(new.cron),
        schedules.c.every.is_not_distinct_from(new.every),
        schedules.c.timezone == new.timezone,
    )
    changes = {c: new[c] for c in ("workflow", "cron", "every", "timezone", "catch_up", "input", "options", "own")}
    stays = or_(same, schedules.c.paused_at.is_not(None))
    changes |= {"next_at": case((stays, schedules.c.next_at), else_=new.next_at), "error": None}
    connection.execute(statement.on_conflict_do_update(index_elements=["name"], set_=changes))


def remove_schedule(connection: Connection, name: str) -> bool:
    return connection.execute(delete(schedules).where(schedules.c.name == name)).rowcount == 1


def pause_schedule(connection: Connection, name: str, by: str) -> bool:
    """False: it does not exist, or it is paused already."""
    changed = update(schedules).where(schedules.c.name == name, schedules.c.paused_at.is_(None))
    return connection.execute(changed.values(paused_at=now(), paused_by=by, next_at=PAUSED_UNTIL)).rowcount == 1


def resume_schedule(connection: Connection, name: str) -> bool:
    """It continues with the next tick: those that passed meanwhile get no run. False: it is not paused."""
    found = connection.execute(_RECORDS.where(schedules.c.name == name).with_for_update()).mappings().first()
    if found is None or found["paused_at"] is None:
        return False
    following = _record(found).rule.next_after(connection.scalar(select(now())) or dt.datetime.now(dt.UTC))
    changed = update(schedules).where(schedules.c.name == name, schedules.c.paused_at.is_not(None))
    values = {"paused_at": None, "paused_by": None, "next_at": following, "error": None}
    return connection.execute(changed.values(values)).rowcount == 1


def find_schedule(connection: Connection, name: str) -> ScheduleRecord | None:
    found = connection.execute(_RECORDS.where(schedules.c.name == name)).mappings().first()
    return None if found is None else _record(found)


def remove_own_schedule(connection: Connection, workflow: str) -> None:
    connection.execute(delete(schedules).where(schedules.c.name == workflow, schedules.c.own))


def list_schedules(connection: Connection, workflow: str | None = None) -> list[ScheduleRecord]:
    statement = _RECORDS.order_by(schedules.c.name)
    if workflow is not None:
        statement = statement.where(schedules.c.workflow == workflow)
    return [_record(row) for row in connection.execute(statement).mappings()]


def read_schedule(connection: Connection, name: str) -> ScheduleRecord:
    return _record(connection.execute(_RECORDS.where(schedules.c.name == name)).mappings().one())


#: The input as text: SQLite keeps what is not JSON, and one row that cannot be parsed would fail the whole list.
_RECORDS = select(
    *(column for column in schedules.c if column is not schedules.c.input),
    cast(schedules.c.input, Text).label("input"),
)


def _record(row: RowMapping) -> ScheduleRecord:
    try:
        return ScheduleRecord(**{**row, "input": load(row["input"])})
    except ValueError as error:
        return ScheduleRecord(**{**row, "input": None, "error": f"its input is not JSON: {error}"})
