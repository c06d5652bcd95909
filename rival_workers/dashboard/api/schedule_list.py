"""Routes of schedules: list them, add or change one."""

from __future__ import annotations

import datetime as dt
from itertools import islice
from typing import Any, Literal

from rival_client.model.cron import checked_rule
from rival_client.model.planned_schedules import run_id_at
from rival_client.sql.reads.schedule_reads import ScheduleRecord, list_schedules
from rival_workers.dashboard.audit import audit
from rival_workers.dashboard.board import Board
from rival_workers.dashboard.commands import Commands, as_json, call_text, commands, shell_text
from rival_workers.dashboard.ids import in_path
from rival_workers.dashboard.problem_json import Refused
from rival_workers.dashboard.route import Call, Confirmed, Route
from rival_workers.dashboard.values import fields, moment, moments

#: Ticks that an answer shows.
_NEXT = 5


def list_(call: Call) -> dict[str, Any]:
    with call.board.database.snapshot() as connection:
        found = list_schedules(connection)
    return {"items": [schedule_view(call.board, one) for one in found]}


def schedule_view(board: Board, one: ScheduleRecord) -> dict[str, Any]:
    return {
        **fields(one, "name workflow cron every timezone catch_up own error paused_by"),
        **moments(one, "last_at paused_at"),
        "input": board.veil.value(one.input),
        "next_at": None if one.paused_at else moment(one.next_at),
        "next": [] if one.paused_at else [moment(tick) for tick in _ticks(one)],
        "last_run": None if one.last_at is None else run_id_at(one.name, one.last_at),
        "rule": str(one.rule),
    }


def _ticks(one: ScheduleRecord) -> list[dt.datetime]:
    """None, if its rule cannot be read here: `error` says why."""
    try:
        return list(islice(one.rule.between(one.next_at, dt.datetime.max.replace(tzinfo=dt.UTC)), _NEXT))
    except (ValueError, OverflowError, LookupError):
        return []


class Planning(Confirmed):
    workflow: str
    cron: str | None = None
    every: float | None = None
    timezone: str = "UTC"
    catch_up: Literal["none", "last", "all"] = "none"
    input: Any = None


def put(call: Call) -> dict[str, Any]:
    name, given = call.names["schedule"], call.body
    if (given.cron is None) == (given.every is None):
        raise Refused(422, "InvalidArgument", "Give either `cron` or `every`.")
    when = given.cron if given.cron is not None else given.every
    how: dict[str, Any] = {"timezone": given.timezone, "catch_up": given.catch_up}
    if given.dry_run:
        return {"next": _planned(call, given, when), "commands": _put_commands(call, given, when)}
    made = call.board.rival.schedule(given.workflow, when, name=name, input=given.input, **how)
    audit(call, "put_schedule", f"schedule:{name}", when=str(when))
    return {**schedule_view(call.board, made), "commands": _put_commands(call, given, when)}


def _planned(call: Call, given: Planning, when: str | float) -> list[str | None]:
    """The next times, if rule and input are valid."""
    rule = checked_rule(when, given.timezone)
    call.board.reader._validator(given.workflow).validate(given.input)
    ticks = rule.between(dt.datetime.now(dt.UTC), dt.datetime.max.replace(tzinfo=dt.UTC))
    return [moment(tick) for tick in islice(ticks, _NEXT)]


def _put_commands(call: Call, given: Planning, when: str | float) -> Commands:
    name, how = call.names["schedule"], given.model_dump(include={"timezone", "catch_up"}, exclude_defaults=True)
    value = [as_json(given.input)] if given.input is not None else []
    shell = shell_text("schedule add", name, given.workflow, str(when), *value, **how)
    python = call_text("schedule", given.workflow, when, name=name, input=given.input, **how)
    body = given.model_dump(exclude={"dry_run"}, exclude_none=True)
    return commands(call.base, f"schedules/{in_path(name)}", shell, python, body, "PUT")


ROUTES = (
    Route("GET", "/schedules", "viewer", list_, "List schedules", does="schedule ls"),
    Route("PUT", "/schedules/{schedule}", "admin", put, "Add or change a schedule", body=Planning, does="schedule add"),
)
