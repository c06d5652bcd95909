"""Routes that show a run to others: a value that was hidden, a link that expires, one file, a test."""

from __future__ import annotations

import time
from typing import Any, Literal

from pydantic import Field

from rival_client.model.explain import explain
from rival_client.sql.audit import write_audit
from rival_client.sql.reads.history_reads import read_history
from rival_client.sql.reads.run_reads import read_run, read_run_head
from rival_client.sql.reads.state_reads import read_state
from rival_client.sql.reads.step_pages import step_results
from rival_client.sql.reads.why_reads import read_facts
from rival_workers.dashboard.api.one_run import value_of, whole_run
from rival_workers.dashboard.api.reasons import why_view
from rival_workers.dashboard.api.run_history import entry_view
from rival_workers.dashboard.board import Board
from rival_workers.dashboard.documents import as_page, as_test
from rival_workers.dashboard.problem_json import Refused
from rival_workers.dashboard.route import Answer, Call, Form, Route
from rival_workers.dashboard.values import at_pointer

#: The longest time that a shared link is valid, in hours.
_LONGEST = 24 * 30
#: Entries of the history that a shared run has.
_HISTORY = 500
_FOLD = 20
#: Results of steps that a test has.
_RESULTS = 200


class Reveal(Form):
    of: Literal["input", "result", "error", "step-result", "item"]
    step: str | None = None
    pointer: str = Field(default="", max_length=2000)
    reason: str = Field(min_length=1, max_length=2000)


def reveal(call: Call) -> dict[str, Any]:
    """One value as it is. Who has seen it, and why, is recorded first."""
    run_id, given = call.names["run_id"], call.body
    with call.board.database.snapshot() as connection:
        run = read_run(connection, run_id)
        value = value_of(connection, run, given.of, given.step)
    try:
        found = at_pointer(value, given.pointer)
    except (LookupError, ValueError, TypeError):
        raise Refused(404, "NotFound", f"{given.pointer!r} does not point to a value.") from None
    what = {"of": given.of, "step": given.step, "pointer": given.pointer, "reason": given.reason}
    _audit(call, "reveal", run_id, **what)
    return {"value": found}


def _audit(call: Call, what: str, run_id: str, **detail: Any) -> None:
    with call.board.rival.database.transaction() as connection:
        write_audit(connection, call.by, what, f"run:{run_id}", **detail)


# -- links ------------------------------------------------------------------------------------------------


class Share(Form):
    run: str
    hours: float = Field(default=24.0, gt=0, le=_LONGEST)


def share(call: Call) -> Answer:
    given: Share = call.body
    with call.board.database.snapshot() as connection:
        read_run_head(connection, given.run)
    expires = time.time() + given.hours * 3600
    token = call.board.sessions.signed({"share": given.run, "expires": expires})
    _audit(call, "share", given.run, hours=given.hours)
    return Answer({"url": f"share/{token}", "expires_at": _moment(expires)}, 201)


def _moment(at: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at))


def shared(call: Call) -> dict[str, Any]:
    """What the link shows needs no login: one run, without secrets, until it expires."""
    content = call.board.sessions.unsigned(call.names["token"])
    if content is None or "share" not in content or content.get("expires", 0) < time.time():
        raise Refused(404, "NotFound", "This link is not valid, or has expired.")
    found = everything(call.board, content["share"])
    return {**found, "expires_at": _moment(content["expires"])}


def everything(board: Board, run_id: str) -> dict[str, Any]:
    with board.database.snapshot() as connection:
        run = whole_run(board, connection, read_state(connection, run_id, _FOLD))
        entries = read_history(connection, run_id, limit=_HISTORY, slim=True)
        facts = read_facts(connection, run_id)
    veil = board.veil_of(facts.workflow, facts.version)
    history = [entry_view(entry, veil) for entry in entries]
    return {"run": run, "history": history, "why": why_view(explain(facts), veil)}


# -- files ------------------------------------------------------------------------------------------------


def export(call: Call) -> Answer:
    page = as_page(everything(call.board, call.names["run_id"]))
    headers = {"content-disposition": 'attachment; filename="run.html"'}
    return Answer(page.encode(), headers=headers, media_type="text/html; charset=utf-8")


def test(call: Call) -> dict[str, Any]:
    """The run as a test for the testing kit, with what its steps have returned. Secrets are hidden."""
    run_id = call.names["run_id"]
    with call.board.database.snapshot() as connection:
        state = read_state(connection, run_id, _FOLD)
        results = step_results(connection, run_id, _RESULTS)
    return as_test(state, results, call.board.veil_of(state.workflow, state.version))


ROUTES = (
    Route("POST", "/runs/{run_id}/reveal", "admin", reveal, "Show a value that is hidden", body=Reveal),
    Route("POST", "/shares", "admin", share, "Make a link to a run that expires", body=Share, status=201),
    Route("GET", "/shares/{token}", "none", shared, "Read a shared run"),
    Route("GET", "/runs/{run_id}/export", "viewer", export, "Download a run as one page", answers=None),
    Route("GET", "/runs/{run_id}/test", "viewer", test, "Write a run as a test for the testing kit"),
)
