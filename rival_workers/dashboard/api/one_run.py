"""Routes of one run: the whole of it, folded; its family and values."""

from __future__ import annotations

import json
import zlib
from typing import Any, Literal

from pydantic import Field

from rival_client.db.locks import newest_entry
from rival_client.db.log_tables import history, logs
from rival_client.model.history_entries import REQUESTED
from rival_client.model.kinds import BRANCH
from rival_client.model.records import RunState
from rival_client.model.run_entries import HistoryEntry
from rival_client.model.run_node import RunNode
from rival_client.sql.reads import run_reads, state_reads
from rival_client.sql.reads.capped_counts import count_of_run
from rival_client.sql.reads.executors import workers_of
from rival_client.sql.reads.history_reads import newest_ids, read_history
from rival_client.sql.reads.run_family import children_of, read_tree
from rival_client.sql.reads.waits import waits_of
from rival_client.sql.workflows import current_workflow
from rival_workers.dashboard.board import Board
from rival_workers.dashboard.graph import graph, taken
from rival_workers.dashboard.problem_json import Refused
from rival_workers.dashboard.route import Answer, Call, Form, Route
from rival_workers.dashboard.values import Veil, moment
from rival_workers.dashboard.views import attempt_view, count_view, run_view, step_view
from rival_workers.engine.nodes import BranchNode
from rival_workers.engine.plan import Plan

#: Entries of a history whose ids say whether it has changed.
_MARKED = 50


class RunQuery(Form):
    fold: int = Field(default=20, ge=0, le=1000)
    #: The `mark` of an earlier answer: if the history is still the same, there is no content.
    unless: str | None = Field(default=None, max_length=100)


def read_run(call: Call) -> Answer:
    run_id = call.names["run_id"]
    with call.board.database.snapshot() as connection:
        if call.query.unless is not None and call.query.unless == _mark(connection, run_id):
            return Answer(None, 204)
        state = state_reads.read_state(connection, run_id, call.query.fold)
        found = whole_run(call.board, connection, state)
    return Answer(found, headers={"etag": f'"{found["history_id"]}"'})


def _mark(connection: Any, run_id: str) -> str:
    ids = newest_ids(connection, run_id, _MARKED)
    return f"{ids[0] if ids else 0}-{zlib.crc32(repr(ids).encode()):08x}"


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
        "mark": _mark(connection, state.run_id),
        "children": count_view(children_of(connection, state.run_id)),
        "counts": {
            name: count_view(count_of_run(connection, state.run_id, table))
            for name, table in (("history", history), ("logs", logs))
        },
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
    Route("GET", "/runs/{run_id}/tree", "viewer", tree, "Read the family of a run", query=TreeQuery, does="tree"),
    Route("GET", "/runs/{run_id}/payload", "viewer", payload, "Download a value", query=PayloadQuery),
)
