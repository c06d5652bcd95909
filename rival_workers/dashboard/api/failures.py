"""Routes of limits, circuit breakers and dead letters: what is full, what is open, what waits for an operator."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from rival_client.model.breakers import BreakerRecord
from rival_client.model.dead_letters import DeadLetter, DeadLetterFilter
from rival_client.sql.audit import write_audit
from rival_client.sql.limit_records import read_limit
from rival_client.sql.reads.limit_reads import LimitUse, list_limits
from rival_workers.dashboard.api.filters import moment_of
from rival_workers.dashboard.commands import call_text, commands, each_line, shell_text
from rival_workers.dashboard.ids import in_path
from rival_workers.dashboard.route import Call, Confirmed, Form, Route
from rival_workers.dashboard.values import fields, moment, moments
from rival_workers.dashboard.views import count_view


def _audit(call: Call, what: str, about: str, **detail: Any) -> None:
    with call.board.rival.database.transaction() as connection:
        write_audit(connection, call.by, what, about, **detail)


# -- limits -----------------------------------------------------------------------------------------------

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
    _audit(call, "set_limit", f"limit:{name}", max=given.max)
    return {"done": True, "max": changed.max, "commands": texts}


def reset_limit(call: Call) -> dict[str, Any]:
    name = call.names["limit"]
    shell, python = shell_text("limit rm", name), call_text("reset_limit", name)
    texts = commands(call.base, f"limits/{in_path(name)}/reset", shell, python, {})
    if call.body.dry_run:
        return {"done": False, "commands": texts}
    changed = call.board.rival.reset_limit(name)
    _audit(call, "reset_limit", f"limit:{name}")
    return {"done": True, "max": changed.max, "commands": texts}


# -- dead letters -----------------------------------------------------------------------------------------


class LettersQuery(Form):
    workflow: str | None = None
    run_id: str | None = None
    step: str | None = None
    error: str | None = None
    since: str | None = None
    until: str | None = None
    limit: int = Field(default=50, ge=1, le=200)

    def chosen(self) -> DeadLetterFilter:
        about = self.model_dump(include={"workflow", "run_id", "step", "error"})
        since, until = moment_of("since", self.since), moment_of("until", self.until)
        return DeadLetterFilter(**about, since=since, until=until)


def letters(call: Call) -> dict[str, Any]:
    found = call.board.reader.dead_letters(call.query.chosen(), limit=call.query.limit)
    return {"items": [_letter(call, one) for one in found]}


def _letter(call: Call, one: DeadLetter) -> dict[str, Any]:
    error = {"type": one.error_type, "message": call.board.veil.text(one.message)}
    return {"run": one.run_id, "step": one.path, "workflow": one.workflow, "error": error, "at": moment(one.at)}


class LetterOrder(Confirmed):
    runs: list[str] = Field(min_length=1, max_length=100)


class Redrive(LetterOrder):
    rate: float = Field(default=50.0, gt=0, le=10_000)


def redrive(call: Call) -> dict[str, Any]:
    given: Redrive = call.body
    found = call.board.rival.redrive(given.runs, rate=given.rate, dry_run=given.dry_run, by=call.by)
    shell = each_line(shell_text("dlq redrive", one) for one in given.runs)
    texts = commands(call.base, "dead-letters/redrive", shell, call_text("redrive", given.runs), {"runs": given.runs})
    return {"done": list(found.done), "refused": found.refused, "dry_run": found.dry_run, "commands": texts}


def drop(call: Call) -> dict[str, Any]:
    """The runs stay as they are."""
    given: LetterOrder = call.body
    shell = each_line(shell_text("dlq drop", one) for one in given.runs)
    python = call_text("drop_dead_letters", given.runs)
    texts = commands(call.base, "dead-letters/drop", shell, python, {"runs": given.runs})
    if given.dry_run:
        return {"dropped": 0, "commands": texts}
    return {"dropped": call.board.rival.drop_dead_letters(given.runs, by=call.by), "commands": texts}


# -- circuit breakers -------------------------------------------------------------------------------------


def breakers(call: Call) -> dict[str, Any]:
    return {"items": [_breaker(one) for one in call.board.reader.breakers()]}


def _breaker(one: BreakerRecord) -> dict[str, Any]:
    known = fields(one, "name state opened successes failures changed_by")
    probe = None if one.probe_run is None else {"run": one.probe_run, "step": one.probe_path}
    return {**known, **moments(one, "until changed_at"), "probe": probe}


class OpenBreaker(Confirmed):
    seconds: float | None = Field(default=None, gt=0, le=10**9)


def open_breaker(call: Call) -> dict[str, Any]:
    return _with_breaker(call, "open", seconds=call.body.seconds)


def close_breaker(call: Call) -> dict[str, Any]:
    return _with_breaker(call, "close")


def reset_breaker(call: Call) -> dict[str, Any]:
    return _with_breaker(call, "reset")


def _with_breaker(call: Call, verb: str, **given: Any) -> dict[str, Any]:
    """`changed` is False if it was not open, or does not exist."""
    name, method = call.names["breaker"], f"{verb}_breaker"
    body = {key: value for key, value in given.items() if value is not None}
    shell, python = shell_text(f"breaker {verb}", name, **body), call_text(method, name, **body)
    texts = commands(call.base, f"breakers/{in_path(name)}/{verb}", shell, python, body)
    if call.body.dry_run:
        return {"changed": False, "commands": texts}
    by = {} if verb == "reset" else {"by": call.by}
    changed = getattr(call.board.rival, method)(name, **body, **by)
    _audit(call, method, f"breaker:{name}", **body)
    return {"changed": changed is not False, "commands": texts}


_LIMIT, _BREAKER = "/limits/{limit}", "/breakers/{breaker}"
ROUTES = (
    Route("GET", "/limits", "viewer", limits, "List limits and what is in use", does="limit ls"),
    Route("GET", _LIMIT, "viewer", one_limit, "Read what waits for a limit", query=LimitQuery, does="limit show"),
    Route("PUT", _LIMIT, "admin", set_limit, "Change the maximum of a limit", body=LimitOrder, does="limit set"),
    Route("POST", f"{_LIMIT}/reset", "admin", reset_limit, "Undo such a change", body=Confirmed, does="limit rm"),
    Route("GET", "/breakers", "viewer", breakers, "List circuit breakers", does="breaker ls"),
    Route("POST", f"{_BREAKER}/open", "operator", open_breaker, "Open one", body=OpenBreaker, does="breaker open"),
    Route("POST", f"{_BREAKER}/close", "operator", close_breaker, "Close one", body=Confirmed, does="breaker close"),
    Route("POST", f"{_BREAKER}/reset", "operator", reset_breaker, "Reset one", body=Confirmed, does="breaker reset"),
    Route("GET", "/dead-letters", "viewer", letters, "List dead letters", query=LettersQuery, does="dlq ls"),
    Route(
        "POST", "/dead-letters/redrive", "operator", redrive, "Run dead letters again", body=Redrive, does="dlq redrive"
    ),
    Route("POST", "/dead-letters/drop", "operator", drop, "Remove dead letters", body=LetterOrder, does="dlq drop"),
)
