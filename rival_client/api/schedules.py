"""Schedules, as a producer sets them: the part of `Rival` that makes, lists and removes them."""

from __future__ import annotations

import datetime as dt
from typing import Any

from sqlalchemy import Connection

from rival_client.api.base import ClientBase
from rival_client.model import arguments
from rival_client.model.cron import CatchUp, Planned, checked_catch_up, checked_name, checked_rule
from rival_client.sql.schedules import (
    ScheduleRecord,
    list_schedules,
    put_schedule,
    read_schedule,
    refuse_taken,
    remove_schedule,
)


class ScheduleOperations(ClientBase):
    def schedule(
        self,
        workflow: str,
        when: str | float | dt.timedelta,
        *,
        name: str,
        input: Any = None,
        timezone: str = "UTC",
        catch_up: CatchUp = "none",
    ) -> ScheduleRecord:
        """Start a run at each tick of a cron expression, or every so many seconds. The same name again changes it.

        `catch_up`: of the ticks that the whole fleet has missed, "none" get a run, or the "last", or "all".
        """
        workflow, name = arguments.name("workflow", workflow), checked_name(name)
        planned = Planned(
            checked_rule(when, timezone), checked_catch_up(catch_up), self._validator(workflow).validate(input)
        )

        def put(own: Connection) -> ScheduleRecord:
            refuse_taken(own, name)
            put_schedule(own, name, workflow, planned)
            return read_schedule(own, name)

        return self.database.transact(put)

    def schedules(self, workflow: str | None = None) -> list[ScheduleRecord]:
        """All schedules, or those of one workflow, by name."""
        workflow = arguments.optional(arguments.name, "workflow", workflow)
        with self.database.autocommit() as connection:
            return list_schedules(connection, workflow)

    def unschedule(self, name: str) -> bool:
        """False when there is no such schedule. A workflow's own comes back when a worker registers the workflow."""
        name = arguments.name("name", name)
        return self.database.transact(lambda own: remove_schedule(own, name))
