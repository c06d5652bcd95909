"""Routes of the history of one run, and of the log entries of its steps."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from rival_client.sql.reads import run_reads
from rival_client.sql.reads.history_reads import read_entry, read_history, read_newest
from rival_client.sql.reads.logs import read_last_logs, read_logs
from rival_workers.dashboard.entry_views import entry_view, log_view
from rival_workers.dashboard.problem_json import Refused
from rival_workers.dashboard.route import Call, Form, Route


class HistoryQuery(Form):
    after: int = Field(default=0, ge=0, le=2**62)
    before: int | None = Field(default=None, ge=0, le=2**62)
    limit: int = Field(default=200, ge=1, le=1000)
    order: Literal["oldest", "newest"] = "oldest"
    step: str | None = None


def history(call: Call) -> dict[str, Any]:
    run_id, query = call.names["run_id"], call.query
    with call.board.database.snapshot() as connection:
        run = run_reads.read_run_head(connection, run_id)
        if query.order == "newest" or query.step is not None:
            entries = read_newest(connection, run_id, before=query.before, limit=query.limit, path=query.step)
        else:
            entries = read_history(connection, run_id, after=query.after, limit=query.limit, slim=True)
    veil = call.board.veil_of(run.workflow, run.version)
    following = entries[-1].id if len(entries) == query.limit else None
    return {"items": [entry_view(entry, veil) for entry in entries], "next": following}


def one_entry(call: Call) -> dict[str, Any]:
    run_id, number = call.names["run_id"], call.names["entry_id"]
    if not (number.isascii() and number.isdigit() and len(number) < 19):
        raise Refused(404, "NotFound", f"{number[:40]!r} is not the number of a history entry.")
    with call.board.database.snapshot() as connection:
        run = run_reads.read_run_head(connection, run_id)
        entry = read_entry(connection, run_id, int(number))
    if entry is None:
        raise Refused(404, "NotFound", f"The history of run {run_id!r} has no entry {number}.")
    return entry_view(entry, call.board.veil_of(run.workflow, run.version))


class LogQuery(Form):
    step: str | None = None
    level: Literal["debug", "info", "warning", "error"] | None = None
    after: int = Field(default=0, ge=0, le=2**62)
    limit: int = Field(default=500, ge=1, le=5000)
    order: Literal["oldest", "newest"] = "oldest"


def logs(call: Call) -> dict[str, Any]:
    run_id, query = call.names["run_id"], call.query
    with call.board.database.snapshot() as connection:
        run = run_reads.read_run_head(connection, run_id)
        if query.order == "newest":
            found = read_last_logs(connection, run_id, step=query.step, level=query.level, limit=query.limit)
        else:
            about = {"step": query.step, "level": query.level, "after": query.after, "limit": query.limit}
            found = read_logs(connection, run_id, **about)
    following = found[-1].id if len(found) == query.limit else None
    veil = call.board.veil_of(run.workflow, run.version)
    return {"items": [log_view(line, veil) for line in found], "next": following}


ROUTES = (
    Route("GET", "/runs/{run_id}/history", "viewer", history, "Read the history, without values", query=HistoryQuery),
    Route("GET", "/runs/{run_id}/history/{entry_id}", "viewer", one_entry, "Read one entry of the history"),
    Route("GET", "/runs/{run_id}/logs", "viewer", logs, "Read what the steps have logged", query=LogQuery, does="logs"),
)
