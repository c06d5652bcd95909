"""Routes of dead letters: list them, run them again, remove them."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from rival_client.model.dead_letters import DeadLetter, DeadLetterFilter
from rival_workers.dashboard.api.filters import moment_of
from rival_workers.dashboard.commands import call_text, commands, each_line, shell_text
from rival_workers.dashboard.route import Call, Confirmed, Form, Route
from rival_workers.dashboard.values import moment


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
    about = given.model_dump(include={"rate"}, exclude_defaults=True)
    shell = each_line(shell_text("dlq redrive", one, **about) for one in given.runs)
    python = call_text("redrive", given.runs, **about)
    texts = commands(call.base, "dead-letters/redrive", shell, python, {"runs": given.runs, **about})
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


ROUTES = (
    Route("GET", "/dead-letters", "viewer", letters, "List dead letters", query=LettersQuery, does="dlq ls"),
    Route(
        "POST", "/dead-letters/redrive", "operator", redrive, "Run dead letters again", body=Redrive, does="dlq redrive"
    ),
    Route("POST", "/dead-letters/drop", "operator", drop, "Remove dead letters", body=LetterOrder, does="dlq drop"),
)
