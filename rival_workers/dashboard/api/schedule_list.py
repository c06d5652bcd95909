"""Routes of schedules: list them, add or change one."""

from __future__ import annotations

import datetime as dt
from itertools import islice
from typing import Any, Literal

from rival_client.model.cron import checked_rule
from rival_client.model.starts.planned_schedules import run_id_at
from rival_client.sql.reads.schedule_reads import ScheduleRecord, find_schedule, list_schedules
from rival_workers.dashboard.audit import audit
from rival_workers.dashboard.board import Board
from rival_workers.dashboard.commands import Commands, as_json, call_text, commands, incomplete, shell_text
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
        "input": board.current_veil(one.workflow).value(one.input),
        "next_at": moment(one.next_at),
        "next": [moment(tick) for tick in _ticks(one)],
        "last_run": None if one.last_at is None else run_id_at(one.name, one.last_at),
        "rule": str(one.rule),
    }


def _ticks(one: ScheduleRecord) -> list[dt.datetime]:
    """The next ticks. An empty list for a paused schedule, and for one with an invalid rule, of which `error` has the
    reason."""
    if one.next_at is None:
        return []
    try:
        return list(islice(one.rule.between(one.next_at, dt.datetime.max.replace(tzinfo=dt.UTC)), _NEXT))
    except (ValueError, OverflowError, LookupError):
        return []


class Planning(Confirmed):
    """Without an input, an existing schedule keeps its own. A hidden value that is sent back as it was shown does not
    change.
    """

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
    with call.board.database.snapshot() as connection:
        before = find_schedule(connection, name)
    value, kept = _input_of(call, given, before), (before.options if before else None) or {}
    texts = _put_commands(call, given, when, value, kept)
    if given.dry_run:
        return {"next": _planned(call, given, when, value), "commands": texts}
    # Options that this form does not have, such as labels, stay.
    how: dict[str, Any] = {**kept, "timezone": given.timezone, "catch_up": given.catch_up}
    made = call.board.rival.schedule(given.workflow, when, name=name, input=value, **how)
    audit(call, "put_schedule", f"schedule:{name}", when=str(when))
    return {**schedule_view(call.board, made), "commands": texts}


def _input_of(call: Call, given: Planning, before: ScheduleRecord | None) -> Any:
    if before is not None and "input" not in given.model_fields_set:
        return before.input
    veil = call.board.current_veil(given.workflow)
    value = given.input if before is None else veil.restored(given.input, before.input)
    problems = [{"pointer": f"/input{one}", "message": "is hidden: give the value"} for one in veil.still_hidden(value)]
    if problems:
        raise Refused(422, "InvalidInput", "A value that is hidden was not given.", errors=problems)
    return value


def _planned(call: Call, given: Planning, when: str | float, value: Any) -> list[str | None]:
    """The next times, if rule and input are valid."""
    rule = checked_rule(when, given.timezone)
    call.board.reader._validator(given.workflow).validate(value)
    ticks = rule.between(dt.datetime.now(dt.UTC), dt.datetime.max.replace(tzinfo=dt.UTC))
    return [moment(tick) for tick in islice(ticks, _NEXT)]


def _put_commands(call: Call, given: Planning, when: str | float, value: Any, kept: dict[str, Any]) -> Commands:
    """With the input that the schedule will have: what a command does not give does not stay."""
    name, how = call.names["schedule"], given.model_dump(include={"timezone", "catch_up"}, exclude_defaults=True)
    shown = value if value == given.input else call.board.current_veil(given.workflow).hidden(value)
    written = [as_json(shown)] if shown is not None else []
    shell = shell_text("schedule add", name, given.workflow, str(when), *written, **how, **_kept_options(kept))
    python = call_text("schedule", given.workflow, when, name=name, input=shown, **how, **kept)
    body = given.model_dump(exclude={"dry_run"}, exclude_none=True)
    texts = commands(call.base, f"schedules/{in_path(name)}", shell, python, body, "PUT")
    return texts if shown == value else incomplete(texts, "shell", "python")


def _kept_options(kept: dict[str, Any]) -> dict[str, Any]:
    """Options of the start of its runs, as the command has them."""
    plain = {name: one for name, one in kept.items() if name not in ("labels", "policies")}
    labels = [f"{name}={one}" for name, one in (kept.get("labels") or {}).items()]
    return {**plain, "label": labels, "policy": [as_json(one) for one in kept.get("policies") or ()]}


ROUTES = (
    Route("GET", "/schedules", "viewer", list_, "List schedules", does="schedule ls"),
    Route("PUT", "/schedules/{schedule}", "admin", put, "Add or change a schedule", body=Planning, does="schedule add"),
)
