"""Routes that write a run as a file: one page that needs no server, or a test for the testing kit."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from rival_client.model.kinds import REPLACEABLE
from rival_client.model.records import RunState
from rival_client.model.statuses import CANCELLED, COMPLETED, FAILED, RUN_TERMINAL
from rival_client.sql.reads.event_reads import EventRecord, received_events
from rival_client.sql.reads.state_reads import read_state
from rival_client.sql.reads.step_pages import step_results
from rival_workers.dashboard.route import Answer, Call, Route
from rival_workers.dashboard.run_parts import FOLD, everything
from rival_workers.dashboard.static_files.one_file import one_file
from rival_workers.dashboard.veil import Veil

#: Results of steps, and events, that a test has.
_RESULTS = 200
#: What a reader without scripts sees: mail programs and ticket systems show such a file, too.
_TABLES = """<main><h1>{title}</h1><p>{why}</p>
<h2>Input</h2><pre>{input}</pre><h2>Result</h2><pre>{result}</pre>
<h2>Steps</h2><table><tr><th>step<th>status<th>attempts<th>started<th>seconds<th>error</tr>{steps}</table>
<h2>History</h2><table><tr><th>time<th>step<th>what<th>by</tr>{history}</table></main>
"""


def export(call: Call) -> Answer:
    page = as_page(everything(call.board, call.names["run_id"]))
    headers = {"content-disposition": 'attachment; filename="run.html"'}
    return Answer(page.encode(), headers=headers, media_type="text/html; charset=utf-8")


def test(call: Call) -> dict[str, Any]:
    """The run as a test for the testing kit, with what its steps have returned. Secrets are hidden."""
    run_id = call.names["run_id"]
    with call.board.database.snapshot() as connection:
        state = read_state(connection, run_id, FOLD)
        results = step_results(connection, run_id, _RESULTS)
        events = received_events(connection, run_id, _RESULTS)
    return as_test(state, results, call.board.veil_of(state.workflow, state.version), events)


def as_page(found: dict[str, Any]) -> str:
    run = found["run"]["run"]
    return one_file(f"{run['id']} {run['status']}", _tables(found), found)


def _tables(found: dict[str, Any]) -> str:
    """Everything in it is text: names, errors and values of users are escaped."""
    run = found["run"]["run"]
    return _TABLES.format(
        title=escape(f"{run['id']} {run['status']}"),
        why=escape(found["why"]["sentence"]),
        input=escape(_text(run["input"])),
        result=escape(_text(run["result"] or run["error"])),
        steps="".join(_row(_step_cells(one)) for one in found["run"]["steps"]),
        history="".join(_row([one["at"], one["step"], one["what"], one["by"]]) for one in found["history"]),
    )


def _text(value: Any) -> str:
    shown = value.get("value") if isinstance(value, dict) and "preview" in value else value
    preview = value.get("preview") if isinstance(value, dict) else None
    return preview or json.dumps(shown, indent=2, ensure_ascii=False)


def _step_cells(one: dict[str, Any]) -> list[Any]:
    error = one["error"] or one["last_error"]
    text = f"{error['type']}: {error['message']}" if error else ""
    return [one["path"], one["status"], one["attempts"], one["started_at"], one["duration"], text]


def _row(cells: list[Any]) -> str:
    return "<tr>" + "".join(f"<td>{escape('' if cell is None else str(cell))}" for cell in cells) + "</tr>"


def as_test(
    state: RunState, results: Mapping[str, Any], veil: Veil, events: Sequence[EventRecord] = ()
) -> dict[str, Any]:
    """A test that replaces each step by what it has returned, so that it runs without what the steps call, and sends
    the events that the run has received."""
    name = re.sub(r"\W+", "_", state.run_id.lower(), flags=re.ASCII).strip("_")[:60] or "run"
    lines = [
        f'"""Run {_one_line(state.run_id)} of workflow {_one_line(state.workflow)}, as a test."""',
        "",
        "",
        f"def test_{name}(rival_lab):",
        "    # rival_lab.register(...): the workflow, if its file is not registered already.",
        *(f"    rival_lab.replace({path!r}, lambda: {veil.hidden(result)!r})" for path, result in results.items()),
        *(f"    rival_lab.fail({path!r}, times=None)" for path in _failed(state)),
        *_asserted(state, veil, [_sent(one, veil) for one in events]),
    ]
    return {"filename": f"test_{name}.py", "text": "\n".join([*lines, ""])}


def _failed(state: RunState) -> list[str]:
    """The steps that failed for good. A step in an item or an iteration is not addressed by one path."""
    its = (one for one in state.steps if one.status == FAILED and one.kind in REPLACEABLE)
    return [one.path for one in its if "[" not in one.path and "!" not in one.path]


def _sent(event: EventRecord, veil: Veil) -> str:
    key = "" if event.key is None else f", key={event.key!r}"
    return f"    rival_lab.send_event({event.topic!r}, {veil.hidden(event.payload)!r}{key}, run_id=run.run_id)"


def _asserted(state: RunState, veil: Veil, sent: list[str]) -> list[str]:
    call = f"({state.workflow!r}, {veil.hidden(state.input)!r})"
    begun = [f"    run = rival_lab.start{call}", *sent]
    if state.status not in RUN_TERMINAL:
        return ["    # The run had not ended, so the test does not check its end.", *begun]
    if state.status == CANCELLED:
        more = "    # The run was cancelled later than here: the test does not repeat how far it had come."
        return [more, *begun, "    run.cancel()", "    run.finish().assert_cancelled()"]
    ended = [*begun, "    run.finish()"] if sent else [f"    run = rival_lab.run{call}"]
    lines = [*ended, f"    assert run.status == {state.status!r}"]
    return [*lines, f"    assert run.result == {veil.hidden(state.result)!r}"] if state.status == COMPLETED else lines


def _one_line(text: str) -> str:
    return json.dumps(text)[1:-1].replace('"', "'")


ROUTES = (
    Route("GET", "/runs/{run_id}/export", "viewer", export, "Download a run as one page", answers=None),
    Route("GET", "/runs/{run_id}/test", "viewer", test, "Write a run as a test for the testing kit"),
)
