"""Converts a run of a list to the JSON of the API, with its first open steps."""

from __future__ import annotations

import datetime as dt
import json
import re
from collections.abc import Sequence
from typing import Any

from rival_client.model import statuses
from rival_client.model.kinds import FLOW, FOR_EACH, INTERNAL, waits_for
from rival_client.sql.reads import open_step_rows
from rival_client.sql.reads.open_step_rows import OpenStep
from rival_client.sql.reads.run_rows import INPUT_START, RunRow
from rival_workers.dashboard.board import Board
from rival_workers.dashboard.usual import usual_seconds
from rival_workers.dashboard.values import moment
from rival_workers.dashboard.veil import Veil
from rival_workers.dashboard.views import child_of, error_view, of_run

#: Of an error that was read in part: its type, and as much of its message as there is. The traceback comes after them.
_TEXT = r'(?:[^"\\]|\\[^u]|\\u[0-9a-fA-F]{4})*'
_BEGINNING = re.compile(rf'\{{"type": ?(?P<type>"{_TEXT}"), ?"message": ?"(?P<message>{_TEXT})')

_BUSY_FIRST = (statuses.RUNNING, statuses.WAITING_RETRY, statuses.WAITING, statuses.PENDING)


def row_view(row: RunRow, veil: Veil, open_steps: Sequence[OpenStep] = ()) -> dict[str, Any]:
    error = error_view(_parsed(row.error), veil)
    return {
        "id": row.id,
        **of_run(row),
        "paused_at": moment(row.paused_at if row.is_open else None),
        "error": error,
        "input": veil.beginning(row.input, len(row.input or "") < INPUT_START),
        "at": _stands_at(row, error, open_steps, veil),
    }


def _parsed(text: str | None) -> Any:
    """The error's JSON, or as much of it as was read."""
    if text is None:
        return None
    try:
        return json.loads(text)
    except ValueError:
        found = _BEGINNING.match(text)
    if found is None:
        return {"type": "Error", "message": text[:500]}
    # It may end in the middle of a character.
    message = json.loads(f'"{found["message"]}"').encode(errors="ignore").decode()
    return {"type": json.loads(found["type"]), "message": message}


def _stands_at(
    row: RunRow, error: dict[str, Any] | None, open_steps: Sequence[OpenStep], veil: Veil
) -> dict[str, Any] | None:
    if row.status == statuses.FAILED:
        text = f"{error['type']}: {error['message']}" if error else "failed"
        return _at(row.failed_step, "failed", None, text[:300])
    if not row.is_open:
        return None
    if row.parked:
        return _at(None, row.status, "worker", f"parked: {row.parked}")
    step = _shown_step(open_steps)
    if step is None:
        return _at(None, row.status, "worker", "not begun") if row.started_at is None else None
    found = _at(step.path, step.status, _waits(step), step_line(step, veil), step.due_at or step.timeout_at)
    return {**found, "kind": step.kind, "progress": _progress(step)}


def _at(
    step: str | None, status: str, waits: str | None, text: str, until: dt.datetime | None = None
) -> dict[str, Any]:
    return {
        "step": step,
        "status": status,
        "kind": None,
        "waits_for": waits,
        "text": text,
        "until": moment(until),
        "progress": None,
    }


def _shown_step(found: Sequence[OpenStep]) -> OpenStep | None:
    """A for_each says most about its run; else the first leaf that is at work; else what is open at all."""
    many = [one for one in found if one.kind == FOR_EACH and one.total and "[" not in one.path]
    leaves = [one for one in found if waits_for(one.kind) != "steps" and one.kind not in INTERNAL]
    # The checkpoint of a flow says what the flow waits for.
    leaves.sort(key=lambda one: (_BUSY_FIRST.index(one.status), one.kind == FLOW))
    return next(iter([*many, *leaves, *found]), None)


def _waits(step: OpenStep) -> str | None:
    match step.status:
        case statuses.PENDING:
            return "worker"
        case statuses.WAITING_RETRY:
            return "retry"
        case statuses.WAITING:
            return waits_for(step.kind)
    return None


def step_line(step: OpenStep, veil: Veil) -> str:
    """One line about an open step; times are apart from it, so that a browser can show them in its own zone."""
    if step.parked:
        return f"parked: {step.parked}"
    error = error_view(_parsed(step.error), veil)
    after = f" after {error['type']}: {error['message']}" if error else ""
    match step.status:
        case statuses.PENDING:
            return "waits for a worker"
        case statuses.RUNNING:
            return f"attempt {step.attempts}" + (f", {step.lost} lost" if step.lost else "")
        case statuses.WAITING_RETRY:
            return f"attempt {step.attempts + 1} follows{after}"[:300]
    return _waiting_line(step)


def _waiting_line(step: OpenStep) -> str:
    match waits_for(step.kind):
        case "event":
            return f"event {step.topic or ''}" + (f", key {step.key}" if step.key else "")
        case "child":
            return f"child run {child_of(step.kind, _parsed(step.child)) or ''}".strip()
        case "external":
            return "an external system"
        case "steps":
            return f"{(step.total or 0) - (step.remaining or 0):,} of {step.total:,}" if step.total else ""
    return "delay"


def _progress(step: OpenStep) -> dict[str, int] | None:
    if not step.total or step.remaining is None:
        return None
    return {"done": step.total - step.remaining, "total": step.total}


def views_of(board: Board, connection: Any, found: Sequence[RunRow]) -> list[dict[str, Any]]:
    """Rows with what the open ones stand at."""
    open_steps = open_step_rows.open_steps(connection, [row.id for row in found if row.is_open])
    usual = {name: usual_seconds(board, connection, name) for name in {row.workflow for row in found}}
    return [
        row_view(row, board.veil_of(row.workflow, row.version), open_steps.get(row.id, ()))
        | {"usual": usual[row.workflow]}
        for row in found
    ]
