"""Writes schedules: rows that say which workflow to start and when. The workers' keepers fire them."""

from __future__ import annotations

import datetime as dt
from typing import Any

from sqlalchemy import Connection, and_, case, delete, or_, select, true, update
from sqlalchemy.dialects import postgresql, sqlite

from rival_client.db.fleet_tables import PAUSED_UNTIL, schedules
from rival_client.db.run_tables import workflows
from rival_client.db.types import now
from rival_client.errors import InvalidArgument
from rival_client.model.starts.planned_schedules import Planned
from rival_client.sql.reads.schedule_reads import RECORDS, schedule_of


def refuse_taken(connection: Connection, name: str) -> None:
    """Refuse the name of a workflow: it is reserved for the workflow's own schedule."""
    if connection.scalar(select(true()).where(workflows.c.name == name).limit(1)):
        problem = f"{name!r} is the name of a workflow, whose own schedule it would be. Choose another name."
        raise InvalidArgument("name", problem)


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
    found = connection.execute(RECORDS.where(schedules.c.name == name).with_for_update()).mappings().first()
    if found is None or found["paused_at"] is None:
        return False
    following = schedule_of(found).rule.next_after(connection.scalar(select(now())) or dt.datetime.now(dt.UTC))
    changed = update(schedules).where(schedules.c.name == name, schedules.c.paused_at.is_not(None))
    values = {"paused_at": None, "paused_by": None, "next_at": following, "error": None}
    return connection.execute(changed.values(values)).rowcount == 1


def remove_own_schedule(connection: Connection, workflow: str) -> None:
    connection.execute(delete(schedules).where(schedules.c.name == workflow, schedules.c.own))


def schedule_names(connection: Connection) -> list[str]:
    return list(connection.scalars(select(schedules.c.name)))
