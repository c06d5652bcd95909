"""Schedules: the part of both clients that creates, lists, pauses, fires and removes them."""

from __future__ import annotations

import datetime as dt
import secrets
from collections.abc import Iterator, Sequence
from itertools import islice, takewhile
from typing import Any, Unpack

from sqlalchemy import Connection, select

from rival_client.api.async_base import AsyncClientBase, awaitable
from rival_client.api.base import ClientBase
from rival_client.db.types import now
from rival_client.errors import InvalidArgument, NotPossible, UnknownSchedule
from rival_client.model.checks import amounts, arguments
from rival_client.model.cron import checked_rule
from rival_client.model.starts.planned_schedules import CatchUp, Planned, checked_catch_up, checked_name, run_id_at
from rival_client.model.starts.run_options import RunOptions
from rival_client.model.starts.start_options import StartOptions
from rival_client.model.starts.starts import Start
from rival_client.sql.history import record_requests
from rival_client.sql.reads.run_rows import versions_of
from rival_client.sql.reads.schedule_reads import ScheduleRecord, find_schedule, list_schedules, read_schedule
from rival_client.sql.run_inserts import insert_or_queue
from rival_client.sql.schedules import pause_schedule, put_schedule, refuse_taken, remove_schedule, resume_schedule

#: So many run ids of a backfill are looked up at once.
AT_ONCE = 1000


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
        **options: Unpack[RunOptions],
    ) -> ScheduleRecord:
        """Start a run at each tick of a cron expression, or every so many seconds. The same name again changes it.

        `catch_up`: of the ticks that the whole fleet has missed, "none" get a run, or the "last", or "all".
        """
        workflow, name = arguments.name("workflow", workflow), checked_name(name)
        how = StartOptions.of_schedule(options)
        rule, missed, validator = checked_rule(when, timezone), checked_catch_up(catch_up), self._validator(workflow)
        how.check_steps(validator.workflow)
        checked = validator.validate(input, not_done=f"schedule {name!r} was not set")
        planned = Planned(rule, missed, checked, how)

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
        """False: it does not exist. A workflow's own comes back when a worker registers the workflow."""
        name = arguments.name("name", name)
        return self.database.transact(lambda own: remove_schedule(own, name))

    def pause_schedule(self, name: str, *, by: str = "client") -> bool:
        """It starts no runs until it is resumed. False: it is paused already."""
        name, by = self._existing(name).name, arguments.name("by", by)
        return self.database.transact(lambda own: pause_schedule(own, name, by))

    def resume_schedule(self, name: str) -> bool:
        """It continues with its next tick; `backfill_schedule` starts what it has missed. False: it is not paused."""
        name = self._existing(name).name
        return self.database.transact(lambda own: resume_schedule(own, name))

    def fire_schedule(self, name: str, *, by: str = "client") -> str:
        """Start a run of it now, also while it is paused; the id of the run. Its ticks stay as they are. NotPossible if
        another run has its singleton place, and it does not queue.
        """
        schedule = self._existing(name)
        run_id = f"{run_id_at(schedule.name, self._database_clock())}+{secrets.token_hex(4)}"
        if not self._start_ticks(schedule, [run_id], arguments.name("by", by)):
            key = (schedule.options or {}).get("singleton")
            has_place = f"another run of {schedule.workflow!r} has its singleton place {key!r}"
            raise NotPossible("start", run_id, f"{has_place}: wait for its end, or cancel it")
        return run_id

    def backfill_schedule(
        self,
        name: str,
        since: dt.datetime,
        until: dt.datetime | None = None,
        *,
        limit: int = 100,
        dry_run: bool = False,
        by: str = "client",
    ) -> list[str]:
        """Start the runs of the ticks from `since` on, before `until` (now), that have no run yet: at most `limit`, the
        oldest first. Returns their ids. With `dry_run`, only return these ids.
        """
        schedule, limit = self._existing(name), amounts.limit(limit)
        since, end = amounts.moment("since", since), arguments.optional(amounts.moment, "until", until)
        only_look, by = arguments.flag("dry_run", dry_run), arguments.name("by", by)
        clock = self._database_clock()
        last = clock if end is None else min(end, clock)
        if since > last:
            raise InvalidArgument("since", _too_late(since, end, clock))
        ticks = takewhile(lambda tick: tick < last, schedule.rule.between(since, last))
        ids = list(islice(self._missing(run_id_at(schedule.name, tick) for tick in ticks), limit))
        if only_look or not ids:
            return ids
        created = self._start_ticks(schedule, ids, by)
        return [one for one in ids if one in created]

    def _missing(self, run_ids: Iterator[str]) -> Iterator[str]:
        """Those that do not exist, in their order."""
        while some := list(islice(run_ids, AT_ONCE)):
            with self.database.autocommit() as connection:
                found = versions_of(connection, some)
            yield from (one for one in some if one not in found)

    def _database_clock(self) -> dt.datetime:
        with self.database.autocommit() as connection:
            return connection.scalar(select(now())) or dt.datetime.now(dt.UTC)

    def _existing(self, name: str) -> ScheduleRecord:
        name = arguments.name("name", name)
        with self.database.autocommit() as connection:
            found = find_schedule(connection, name)
            if found is None:
                raise UnknownSchedule(name, [one.name for one in list_schedules(connection)])
        return found

    def _start_ticks(self, schedule: ScheduleRecord, run_ids: Sequence[str], by: str) -> set[str]:
        validator = self._validator(schedule.workflow)
        its_input = validator.validate(schedule.input)
        start = Start(validator.workflow, dict.fromkeys(run_ids, its_input), StartOptions.of(schedule.options or {}))

        def insert(own: Connection) -> set[str]:
            created = insert_or_queue(own, start, self.settings.ring_grace)
            record_requests(own, created, by)
            return created

        created = self.database.transact(insert)
        self.publisher(start)(created)
        return created


def _too_late(since: dt.datetime, end: dt.datetime | None, clock: dt.datetime) -> str:
    if since > clock:
        return (
            f"{since.isoformat()} is in the future: it is {clock.isoformat()} now, and only ticks that have passed run."
        )
    assert end is not None, "what has begun already ends now"
    return f"{since.isoformat()} is after `until`, {end.isoformat()}: no tick is between them."


class AsyncScheduleOperations(AsyncClientBase):
    schedule = awaitable(ScheduleOperations.schedule)
    schedules = awaitable(ScheduleOperations.schedules)
    unschedule = awaitable(ScheduleOperations.unschedule)
    pause_schedule = awaitable(ScheduleOperations.pause_schedule)
    resume_schedule = awaitable(ScheduleOperations.resume_schedule)
    fire_schedule = awaitable(ScheduleOperations.fire_schedule)
    backfill_schedule = awaitable(ScheduleOperations.backfill_schedule)
