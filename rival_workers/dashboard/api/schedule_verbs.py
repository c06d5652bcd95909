"""Routes of verbs on a schedule: pause, resume, fire, backfill, remove."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from rival_client.errors import UnknownSchedule
from rival_client.sql.reads.schedule_reads import find_schedule, list_schedules
from rival_workers.dashboard.api.filters import moment_of
from rival_workers.dashboard.audit import audit
from rival_workers.dashboard.commands import Commands, call_text, commands, shell_text
from rival_workers.dashboard.ids import in_path
from rival_workers.dashboard.route import Call, Confirmed, Form, Route


def remove(call: Call) -> dict[str, Any]:
    name, texts = _existing(call), _commands(call, "rm", "unschedule", {}, "DELETE")
    if call.query.dry_run:
        return {"removed": False, "commands": texts}
    removed = call.board.rival.unschedule(name)
    audit(call, "remove_schedule", f"schedule:{name}")
    return {"removed": removed, "commands": texts}


def _existing(call: Call) -> str:
    name = call.names["schedule"]
    with call.board.database.snapshot() as connection:
        if find_schedule(connection, name) is None:
            raise UnknownSchedule(name, [one.name for one in list_schedules(connection)])
    return name


def _commands(call: Call, word: str, method: str, body: dict[str, Any], verb: str = "POST") -> Commands:
    name = call.names["schedule"]
    path = f"schedules/{in_path(name)}" + ("" if verb == "DELETE" else f"/{word}")
    options = (
        {} if word != "backfill" else {key: value for key, value in body.items() if key != "limit" or value != 100}
    )
    times = {key: moment_of(key, options[key]) for key in ("since", "until") if key in options}
    python = call_text(method, name, **options | times)
    return commands(call.base, path, shell_text(f"schedule {word}", name, **options), python, body, verb)


def pause(call: Call) -> dict[str, Any]:
    name, texts = _existing(call), _commands(call, "pause", "pause_schedule", {})
    if call.body.dry_run:
        return {"changed": False, "commands": texts}
    changed = call.board.rival.pause_schedule(name, by=call.by)
    audit(call, "pause_schedule", f"schedule:{name}")
    return {"changed": changed, "commands": texts}


def resume(call: Call) -> dict[str, Any]:
    name, texts = _existing(call), _commands(call, "resume", "resume_schedule", {})
    if call.body.dry_run:
        return {"changed": False, "commands": texts}
    changed = call.board.rival.resume_schedule(name)
    audit(call, "resume_schedule", f"schedule:{name}")
    return {"changed": changed, "commands": texts}


def fire(call: Call) -> dict[str, Any]:
    name, texts = _existing(call), _commands(call, "fire", "fire_schedule", {})
    if call.body.dry_run:
        return {"run": None, "commands": texts}
    run_id = call.board.rival.fire_schedule(name, by=call.by)
    audit(call, "fire_schedule", f"schedule:{name}", run=run_id)
    return {"run": run_id, "commands": texts}


class Backfill(Confirmed):
    since: str
    until: str | None = None
    limit: int = Field(default=100, ge=1, le=1000)


def backfill(call: Call) -> dict[str, Any]:
    name, given = call.names["schedule"], call.body
    since, until = moment_of("since", given.since), moment_of("until", given.until)
    assert since is not None
    how: dict[str, Any] = {"limit": given.limit, "dry_run": given.dry_run, "by": call.by}
    found = call.board.rival.backfill_schedule(name, since, until, **how)
    if not given.dry_run:
        audit(call, "backfill_schedule", f"schedule:{name}", runs=len(found))
    body = given.model_dump(exclude_none=True, exclude={"dry_run"})
    texts = _commands(call, "backfill", "backfill_schedule", body)
    return {"runs": found, "more": len(found) == given.limit, "commands": texts}


class RemoveQuery(Form):
    dry_run: bool = False


_ONE = "/schedules/{schedule}"
ROUTES = (
    Route("DELETE", _ONE, "admin", remove, "Remove a schedule", query=RemoveQuery, does="schedule rm"),
    Route("POST", f"{_ONE}/pause", "admin", pause, "Pause a schedule", body=Confirmed, does="schedule pause"),
    Route(
        "POST", f"{_ONE}/resume", "admin", resume, "Continue a paused schedule", body=Confirmed, does="schedule resume"
    ),
    Route("POST", f"{_ONE}/fire", "admin", fire, "Start a run of a schedule now", body=Confirmed, does="schedule fire"),
    Route(
        "POST",
        f"{_ONE}/backfill",
        "admin",
        backfill,
        "Start runs of missed ticks",
        body=Backfill,
        does="schedule backfill",
    ),
)
