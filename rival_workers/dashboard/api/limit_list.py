"""Routes of limits: what is in use, what waits, and changes of a maximum."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from rival_client.sql.limit_records import read_limit
from rival_client.sql.reads.limit_reads import LimitUse, list_limits
from rival_workers.dashboard.audit import audit
from rival_workers.dashboard.commands import call_text, commands, shell_text
from rival_workers.dashboard.ids import in_path
from rival_workers.dashboard.route import Call, Confirmed, Form, Route
from rival_workers.dashboard.values import fields, moment
from rival_workers.dashboard.views import count_view

#: Steps and runs that wait for a limit, of which an answer has the first.
_WAITING = 50


def limits(call: Call) -> dict[str, Any]:
    with call.board.database.snapshot() as connection:
        found = list_limits(connection)
    return {"items": [_limit(one) for one in found]}


def _limit(one: LimitUse) -> dict[str, Any]:
    keys = [fields(its, "key maximum used") | {"waiting": count_view(its.waiting)} for its in one.keys]
    return {**fields(one, "name maximum per set_by"), "updated_at": moment(one.updated_at), "keys": keys}


class LimitQuery(Form):
    key: str | None = None


def one_limit(call: Call) -> dict[str, Any]:
    with call.board.database.snapshot() as connection:
        found = read_limit(connection, call.names["limit"], call.query.key, _WAITING)
    waiting = [
        {"key": one.key, "run": one.run_id, "step": one.path or None, "since": moment(one.since)}
        | {"granted": one.granted}
        for one in found.waiting
    ]
    keys = [fields(one, "key max used waiting") for one in found.keys]
    return {**fields(found.limit, "name max per defined_max set_by used"), "keys": keys, "waiting": waiting}


class LimitOrder(Confirmed):
    max: int = Field(ge=0, le=1_000_000)


def set_limit(call: Call) -> dict[str, Any]:
    name, given = call.names["limit"], call.body
    shell, python = shell_text("limit set", name, str(given.max)), call_text("set_limit", name, given.max)
    texts = commands(call.base, f"limits/{in_path(name)}", shell, python, {"max": given.max}, "PUT")
    if given.dry_run:
        return {"done": False, "commands": texts}
    changed = call.board.rival.set_limit(name, given.max, by=call.by)
    audit(call, "set_limit", f"limit:{name}", max=given.max)
    return {"done": True, "max": changed.max, "commands": texts}


def reset_limit(call: Call) -> dict[str, Any]:
    name = call.names["limit"]
    shell, python = shell_text("limit rm", name), call_text("reset_limit", name)
    texts = commands(call.base, f"limits/{in_path(name)}/reset", shell, python, {})
    if call.body.dry_run:
        return {"done": False, "commands": texts}
    changed = call.board.rival.reset_limit(name)
    audit(call, "reset_limit", f"limit:{name}")
    return {"done": True, "max": changed.max, "commands": texts}


_LIMIT = "/limits/{limit}"
ROUTES = (
    Route("GET", "/limits", "viewer", limits, "List limits and what is in use", does="limit ls"),
    Route("GET", _LIMIT, "viewer", one_limit, "Read what waits for a limit", query=LimitQuery, does="limit show"),
    Route("PUT", _LIMIT, "admin", set_limit, "Change the maximum of a limit", body=LimitOrder, does="limit set"),
    Route("POST", f"{_LIMIT}/reset", "admin", reset_limit, "Undo such a change", body=Confirmed, does="limit rm"),
)
