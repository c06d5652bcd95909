"""Routes of limits, circuit breakers and dead letters: what is full, what is open, what waits for an operator."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from rival_client.model.breakers import BreakerRecord
from rival_client.sql.dead_letters import DeadLetter, DeadLetterFilter
from rival_client.sql.limit_reads import LimitUse, list_limits
from rival_workers.dashboard.api.filters import moment_of
from rival_workers.dashboard.commands import call_text, commands
from rival_workers.dashboard.problem_json import Refused
from rival_workers.dashboard.route import Call, Form, Route
from rival_workers.dashboard.values import fields, moment, moments
from rival_workers.dashboard.views import count_view


def limits(call: Call) -> dict[str, Any]:
    with call.board.database.snapshot() as connection:
        found = list_limits(connection)
    return {"items": [_limit(one) for one in found]}


def _limit(one: LimitUse) -> dict[str, Any]:
    keys = [fields(its, "key maximum used") | {"waiting": count_view(its.waiting)} for its in one.keys]
    return {**fields(one, "name maximum per set_by"), "updated_at": moment(one.updated_at), "keys": keys}


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


class Redrive(Form):
    runs: list[str] = Field(min_length=1, max_length=100)
    rate: float = Field(default=50.0, gt=0, le=10_000)
    dry_run: bool = False


def redrive(call: Call) -> dict[str, Any]:
    given: Redrive = call.body
    found = call.board.rival.redrive(given.runs, rate=given.rate, dry_run=given.dry_run, by=call.by)
    shell, python = ["rival", "dlq", "redrive", *given.runs], call_text("redrive", given.runs)
    texts = commands(call.base, "dead-letters/redrive", shell, python, {"runs": given.runs})
    return {"done": list(found.done), "refused": found.refused, "dry_run": found.dry_run, "commands": texts}


class Drop(Form):
    runs: list[str] = Field(min_length=1, max_length=100)


def drop(call: Call) -> dict[str, Any]:
    """The runs stay as they are."""
    if not call.body.runs:
        raise Refused(422, "InvalidArgument", "Give `runs`.")
    return {"dropped": call.board.rival.drop_dead_letters(call.body.runs, by=call.by)}


# -- circuit breakers -------------------------------------------------------------------------------------


def breakers(call: Call) -> dict[str, Any]:
    return {"items": [_breaker(one) for one in call.board.reader.breakers()]}


def _breaker(one: BreakerRecord) -> dict[str, Any]:
    known = fields(one, "name state opened successes failures changed_by")
    probe = None if one.probe_run is None else {"run": one.probe_run, "step": one.probe_path}
    return {**known, **moments(one, "until changed_at"), "probe": probe}


class OpenBreaker(Form):
    seconds: float | None = Field(default=None, gt=0, le=10**9)


def open_breaker(call: Call) -> dict[str, Any]:
    call.board.rival.open_breaker(call.names["breaker"], seconds=call.body.seconds, by=call.by)
    return {"changed": True}


class CloseBreaker(Form):
    pass


def close_breaker(call: Call) -> dict[str, Any]:
    return {"changed": call.board.rival.close_breaker(call.names["breaker"], by=call.by)}


_BREAKER = "/breakers/{breaker}"
ROUTES = (
    Route("GET", "/limits", "viewer", limits, "List limits and what is in use"),
    Route("GET", "/breakers", "viewer", breakers, "List circuit breakers"),
    Route("POST", f"{_BREAKER}/open", "operator", open_breaker, "Open a circuit breaker", body=OpenBreaker),
    Route("POST", f"{_BREAKER}/close", "operator", close_breaker, "Close a circuit breaker", body=CloseBreaker),
    Route("GET", "/dead-letters", "viewer", letters, "List dead letters", query=LettersQuery),
    Route("POST", "/dead-letters/redrive", "operator", redrive, "Run the steps of dead letters again", body=Redrive),
    Route("POST", "/dead-letters/drop", "operator", drop, "Remove dead letters; their runs stay", body=Drop),
)
