"""Routes of one run: the whole of it, folded; its history, logs, family and values."""

from __future__ import annotations

import json
from typing import Any, Literal

from pydantic import Field

from rival_client.db.locks import newest_entry
from rival_client.model.history_entries import REQUESTED
from rival_client.model.kinds import BRANCH
from rival_client.model.records import RunState
from rival_client.model.run_entries import HistoryEntry
from rival_client.model.run_node import RunNode
from rival_client.sql import folded_steps, run_reads
from rival_client.sql.executors import workers_of
from rival_client.sql.history_reads import read_entry, read_history, read_newest
from rival_client.sql.logs import read_last_logs, read_logs
from rival_client.sql.run_family import children_of, read_tree
from rival_client.sql.waits import waits_of
from rival_client.sql.workflows import current_workflow
from rival_workers.dashboard.board import Board
from rival_workers.dashboard.graph import graph, taken
from rival_workers.dashboard.problem_json import Refused
from rival_workers.dashboard.route import Answer, Call, Form, Route
from rival_workers.dashboard.values import Veil, moment
from rival_workers.dashboard.views import attempt_view, count_view, run_view, step_view
from rival_workers.engine.nodes import BranchNode
from rival_workers.engine.plan import Plan


class RunQuery(Form):
    fold: int = Field(default=20, ge=0, le=1000)


def read_run(call: Call) -> Answer:
    run_id = call.names["run_id"]
    with call.board.database.snapshot() as connection:
        state = folded_steps.read_state(connection, run_id, call.query.fold)
        found = whole_run(call.board, connection, state)
    return Answer(found, headers={"etag": f'"{found["history_id"]}"'})


def whole_run(board: Board, connection: Any, state: RunState) -> dict[str, Any]:
    """The answer for one run, from one snapshot."""
    veil, policies = board.veil_of(state.workflow, state.version), board.policies_of(state.workflow, state.version)
    plan = None if policies is None else policies.plan
    current = current_workflow(connection, state.workflow)
    beginnings = {entry.what: entry for entry in read_history(connection, state.run_id, limit=3, slim=True)}
    run = run_view(state, veil) | {
        "started_by": _by(beginnings.get(REQUESTED)),
        "description": board.description_of(state.workflow, state.version),
    }
    return {
        "run": run,
        "steps": _steps(connection, state, plan, veil),
        "folded": state.folded,
        "attempts": [attempt_view(one, state.run_id, veil) for one in state.attempts],
        "graph": None if policies is None else graph(policies),
        "current_version": None if current is None else current.version,
        "history_id": newest_entry(connection, state.run_id),
        "children": count_view(children_of(connection, state.run_id)),
    }


def _by(entry: HistoryEntry | None) -> str | None:
    return None if entry is None else entry.by


def _steps(connection: Any, state: RunState, plan: Plan | None, veil: Veil) -> list[dict[str, Any]]:
    workers = workers_of(connection, {step.executor for step in state.steps if step.executor})
    waits = waits_of(connection, state.run_id)
    views = [step_view(step, veil, workers) for step in state.steps]
    for step, view in zip(state.steps, views, strict=True):
        wait = waits.get(step.path)
        if wait is not None:
            view["wait"] = {"topic": wait.topic, "key": wait.key, "filter": veil.hidden(wait.filter)}
        if step.kind == BRANCH:
            view["taken"] = _taken(state, plan, step.path, view["place"])
    return views


def _taken(state: RunState, plan: Plan | None, path: str, place: str) -> str | None:
    node = plan.places[place].node if plan is not None and place in plan.places else None
    return taken(state.steps, path, {one.name for one in node.then}) if isinstance(node, BranchNode) else None


# -- history and logs -------------------------------------------------------------------------------------


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


def entry_view(entry: HistoryEntry, veil: Veil) -> dict[str, Any]:
    return {
        "id": entry.id,
        "at": moment(entry.at),
        "what": entry.what,
        "step": entry.path,
        "by": entry.by,
        "detail": veil.hidden(entry.detail),
    }


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
        if query.order == "newest":
            found = read_last_logs(connection, run_id, step=query.step, level=query.level, limit=query.limit)
        else:
            about = {"step": query.step, "level": query.level, "after": query.after, "limit": query.limit}
            found = read_logs(connection, run_id, **about)
    following = found[-1].id if len(found) == query.limit else None
    return {"items": [log_view(line, call.board.veil) for line in found], "next": following}


def log_view(line: Any, veil: Veil) -> dict[str, Any]:
    """Workers have hidden secrets before they stored it; words that were added since are hidden here."""
    return {
        "id": line.id,
        "at": moment(line.at),
        "level": line.level,
        "step": line.path,
        "attempt": line.attempt,
        "message": veil.text(line.message),
        "fields": veil.hidden(line.fields),
    }


# -- family and values ------------------------------------------------------------------------------------


class TreeQuery(Form):
    depth: int = Field(default=3, ge=0, le=20)
    width: int = Field(default=50, ge=1, le=200)


def tree(call: Call) -> dict[str, Any]:
    run_id, query = call.names["run_id"], call.query
    with call.board.database.snapshot() as connection:
        root = read_tree(connection, run_id, below=False, depth=query.depth, width=query.width)
    return {"root": _node(root, run_id)}


def _node(node: RunNode, this: str) -> dict[str, Any]:
    return {
        "id": node.run_id,
        "workflow": node.workflow,
        "status": node.status,
        "step": node.parent_path,
        "created_at": moment(node.created_at),
        "completed_at": moment(node.completed_at),
        "children": [_node(child, this) for child in node.children],
        "more": sum(node.more.values()),
        "is_this": node.run_id == this,
    }


class PayloadQuery(Form):
    of: Literal["input", "result", "error", "step-result", "item"] = "input"
    step: str | None = None


def payload(call: Call) -> Answer:
    """A whole value as a file, with secrets hidden."""
    run_id = call.names["run_id"]
    with call.board.database.snapshot() as connection:
        run = run_reads.read_run(connection, run_id)
        value = value_of(connection, run, call.query.of, call.query.step)
    text = json.dumps(call.board.veil_of(run.workflow, run.version).hidden(value), indent=2)
    name = f"{call.query.of}.json"
    headers = {"content-disposition": f'attachment; filename="{name}"'}
    return Answer(text.encode(), headers=headers, media_type="application/json")


def value_of(connection: Any, run: Any, of: str, path: str | None) -> Any:
    if of in ("input", "result", "error"):
        return getattr(run, of)
    step = run_reads.read_step(connection, run.run_id, path or "")
    if step is None:
        raise Refused(404, "NotFound", f"Run {run.run_id!r} has not reached a step {path!r}.")
    return step.result if of == "step-result" else step.item


ROUTES = (
    Route("GET", "/runs/{run_id}", "viewer", read_run, "Read a run with its steps", query=RunQuery, does="show"),
    Route("GET", "/runs/{run_id}/history", "viewer", history, "Read the history, without values", query=HistoryQuery),
    Route("GET", "/runs/{run_id}/history/{entry_id}", "viewer", one_entry, "Read one entry of the history"),
    Route("GET", "/runs/{run_id}/logs", "viewer", logs, "Read what the steps have logged", query=LogQuery, does="logs"),
    Route("GET", "/runs/{run_id}/tree", "viewer", tree, "Read the family of a run", query=TreeQuery, does="tree"),
    Route("GET", "/runs/{run_id}/payload", "viewer", payload, "Download a value", query=PayloadQuery),
)
