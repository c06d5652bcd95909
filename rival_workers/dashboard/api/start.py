"""Routes that start runs, from an input or like another run. Inputs are checked by the client's validator."""

from __future__ import annotations

import json
import time
from typing import Any

from pydantic import Field

from rival_client.api.start_checks import start_of
from rival_client.db import caller_tx
from rival_client.errors import InvalidInput, InvalidPayload
from rival_client.model.starts.run_ids import given_or_new_id
from rival_client.model.starts.start_options import StartOptions
from rival_client.sql.history import record_requests
from rival_client.sql.reads.run_reads import read_run, read_run_head
from rival_client.sql.reads.run_rows import last_inputs
from rival_workers.dashboard.commands import Commands, as_json, call_text, commands, incomplete, shell_text
from rival_workers.dashboard.ids import in_path
from rival_workers.dashboard.problem_json import Refused
from rival_workers.dashboard.route import Answer, Call, Form, Route
from rival_workers.dashboard.values import moment
from rival_workers.dashboard.veil import Veil

LAST_INPUTS = 5
_HIDDEN = "is hidden: give the value, or start like that run"


class Given(Form):
    """An input, or that of another run (`like`). What is hidden in the other one is copied: of the whole, of what a
    JSON merge patch (`patch`) leaves, or of an `input` that was edited as the other one is shown."""

    input: Any = None
    like: str | None = None
    patch: Any = None
    run_id: str | None = Field(default=None, min_length=1)


class Start(Given):
    workflow: str
    dry_run: bool = False


def start(call: Call) -> Answer:
    given: Start = call.body
    value, veil = input_of(call, given, given.workflow)
    problems = _problems(call, given.workflow, given, value)
    if problems:
        raise Refused(422, "InvalidInput", f"The input does not fit workflow {given.workflow!r}.", errors=problems)
    texts = as_commands(call, given.workflow, given, value, veil)
    if given.dry_run:
        return Answer({"run": given_or_new_id(given.run_id), "status": "possible", "commands": texts})
    run_id, is_new = _requested(call, given, value)
    location = f"{call.base}api/v1/runs/{in_path(run_id)}"
    status = "started" if is_new else _status(call, run_id)
    return Answer({"run": run_id, "status": status, "commands": texts}, 201, {"location": location})


def _status(call: Call, run_id: str) -> str:
    with call.board.rival.database.autocommit() as connection:
        return str(read_run_head(connection, run_id).status)


def _requested(call: Call, given: Start, value: Any) -> tuple[str, bool]:
    """Start the run and record who has asked for it, in one transaction. Also says whether the run is new."""
    rival = call.board.rival
    start = start_of(rival._validator(given.workflow), value, given.run_id, StartOptions.of({}))

    def insert(connection: Any) -> set[str]:
        created = caller_tx.insert(connection, start, rival.settings.ring_grace)
        record_requests(connection, created, call.by)
        return created

    created = rival.database.transact(insert)
    rival.publisher(start)(created)
    return start.run_id, bool(created)


def validate(call: Call) -> dict[str, Any]:
    """An input that does not fit is an answer, not an error."""
    given: Given = call.body
    name, began = call.names["workflow"], time.perf_counter()
    value, veil = input_of(call, given, name)
    problems = _problems(call, name, given, value)
    return {
        "ok": not problems,
        "errors": problems,
        "ms": round((time.perf_counter() - began) * 1000, 1),
        "size": len(json.dumps(call.board.current_veil(name).hidden(value))),
        "commands": as_commands(call, name, given, value, veil),
    }


def input_of(call: Call, given: Given, workflow: str) -> tuple[Any, Veil]:
    """The input, and what hides values of the run that it is from."""
    if given.like is None:
        return given.input, call.board.current_veil(workflow)
    with call.board.database.snapshot() as connection:
        run = read_run(connection, given.like)
    if run.workflow != workflow:
        raise Refused(422, "InvalidArgument", f"Run {given.like!r} belongs to workflow {run.workflow!r}.")
    veil = call.board.veil_of(run.workflow, run.version)
    if "input" in given.model_fields_set:
        return veil.restored(given.input, run.input), veil
    return run.input if given.patch is None else merged(run.input, given.patch), veil


def merged(value: Any, patch: Any) -> Any:
    """RFC 7396: null takes a field away."""
    if not isinstance(patch, dict):
        return patch
    result = dict(value) if isinstance(value, dict) else {}
    for name, its in patch.items():
        if its is None:
            result.pop(name, None)
        else:
            result[name] = merged(result.get(name), its)
    return result


def _problems(call: Call, workflow: str, given: Given, value: Any) -> list[dict[str, str]]:
    """Does not quote the input of another run: it may be hidden from the caller."""
    validator = call.board.reader._validator(workflow)
    veil = call.board.veil_of(workflow, validator.workflow.version)
    written = value if "input" in given.model_fields_set else given.patch
    found = [{"pointer": one, "message": _HIDDEN} for one in veil.still_hidden(written)]
    try:
        validator.validate(value, quote=given.like is None)
    except InvalidInput as error:
        found += [{"pointer": one.pointer, "message": one.message} for one in error.found]
    except InvalidPayload as error:
        found.append({"pointer": "", "message": str(error)})
    return found


def as_commands(call: Call, workflow: str, given: Given, value: Any, veil: Veil) -> Commands:
    """With `like`, the input of the other run. What is hidden of it is only in the call for curl, as `like`."""
    named = given.model_dump(include={"input", "like", "patch", "run_id"}, exclude_none=True)
    body: dict[str, Any] = {"workflow": workflow, **named}
    shown = value if given.like is None else call.board.current_veil(workflow).hidden(veil.hidden(value))
    shell = shell_text("run", workflow, as_json(shown), run_id=given.run_id)
    texts = commands(call.base, "runs", shell, call_text("run", workflow, shown, run_id=given.run_id), body)
    return texts if shown == value else incomplete(texts, "shell", "python")


def inputs(call: Call) -> dict[str, Any]:
    name = call.names["workflow"]
    with call.board.database.snapshot() as connection:
        found = last_inputs(connection, name, LAST_INPUTS)
    items = [
        {
            "run": one["id"],
            "created_at": moment(one["created_at"]),
            "status": one["status"],
            "input": call.board.veil_of(name, one["version"]).value(one["input"]),
        }
        for one in found
    ]
    return {"items": items}


ROUTES = (
    Route("POST", "/runs", "operator", start, "Start a run", body=Start, status=201, does="run"),
    Route("POST", "/workflows/{workflow}/validate", "viewer", validate, "Check an input", body=Given, is_read=True),
    Route("GET", "/workflows/{workflow}/inputs", "viewer", inputs, "Read the last inputs"),
)
