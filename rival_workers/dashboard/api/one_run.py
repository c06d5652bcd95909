"""Routes of one run: its state with large composites folded, its family, and its values."""

from __future__ import annotations

import json
from typing import Any, Literal

from pydantic import Field

from rival_client.model.run_node import RunNode
from rival_client.sql.reads import run_reads, state_reads
from rival_client.sql.reads.run_family import read_tree
from rival_workers.dashboard.route import Answer, Call, Form, Route
from rival_workers.dashboard.run_parts import mark_of, value_of, whole_run
from rival_workers.dashboard.values import moment


class RunQuery(Form):
    fold: int = Field(default=20, ge=0, le=1000)
    #: The `mark` of an earlier answer: if the history is still the same, the answer is empty.
    unless: str | None = Field(default=None, max_length=100)


def read_run(call: Call) -> Answer:
    run_id = call.names["run_id"]
    with call.board.database.snapshot() as connection:
        if call.query.unless is not None and call.query.unless == mark_of(connection, run_id):
            return Answer(None, 204)
        state = state_reads.read_state(connection, run_id, call.query.fold)
        found = whole_run(call.board, connection, state)
    return Answer(found, headers={"etag": f'"{found["history_id"]}"'})


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
        "started_at": moment(node.started_at),
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


ROUTES = (
    Route("GET", "/runs/{run_id}", "viewer", read_run, "Read a run with its steps", query=RunQuery, does="show"),
    Route("GET", "/runs/{run_id}/tree", "viewer", tree, "Read the family of a run", query=TreeQuery, does="tree"),
    Route("GET", "/runs/{run_id}/payload", "viewer", payload, "Download a value", query=PayloadQuery),
)
