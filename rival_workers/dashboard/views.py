"""Records as the JSON of the API: runs, steps, attempts, errors. One serialiser for all answers, so that no two pages
can say different things about the same row.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Sequence
from typing import Any

from rival_client.broker.message import attempt_id
from rival_client.model import statuses
from rival_client.model.kinds import CHILD, CHILD_RESULT, FLOW, FOR_EACH, INTERNAL, waits_for
from rival_client.model.records import Run
from rival_client.model.step_records import Attempt, Step
from rival_client.sql.reads.capped_counts import Count
from rival_client.sql.reads.open_step_rows import OpenStep
from rival_client.sql.reads.run_rows import INPUT_START, RunRow
from rival_workers.dashboard.graph import addressed
from rival_workers.dashboard.values import Veil, fields, moment, moments

__all__ = ["attempt_view", "count_view", "error_view", "row_view", "run_view", "step_view"]

_BUSY_FIRST = (statuses.RUNNING, statuses.WAITING_RETRY, statuses.WAITING, statuses.PENDING)


def count_view(count: Count) -> dict[str, Any]:
    return {"count": count.count, "more": count.more}


def error_view(error: Any, veil: Veil, *, traceback: bool = False) -> dict[str, Any] | None:
    if not isinstance(error, dict):
        return None
    text = error.get("traceback") if traceback else None
    return {
        "type": str(error.get("type", "Error")),
        "message": veil.text(str(error.get("message", "")))[:4000],
        "traceback": veil.text(str(text)) if text else None,
    }


# -- a run in a list --------------------------------------------------------------------------------------


def row_view(row: RunRow, veil: Veil, open_steps: Sequence[OpenStep] = ()) -> dict[str, Any]:
    error = error_view(_parsed(row.error), veil)
    return {
        "id": row.id,
        **_of_run(row),
        "paused_at": moment(row.paused_at if row.is_open else None),
        "error": error,
        "input": veil.beginning(row.input, len(row.input or "") < INPUT_START),
        "at": _stands_at(row, error, open_steps, veil),
    }


def _of_run(run: RunRow | Run) -> dict[str, Any]:
    parent = {"run": run.parent_run_id, "step": run.parent_path}
    return {
        **fields(run, "workflow version status parked failed_step"),
        **moments(run, "created_at started_at completed_at"),
        "parent": parent if run.parent_run_id is not None else None,
    }


def _parsed(text: str | None) -> Any:
    """The error's JSON, or as much of it as was read."""
    if text is None:
        return None
    try:
        return json.loads(text)
    except ValueError:
        return {"type": "Error", "message": text[:500]}


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


def child_of(kind: str, item: Any) -> str | None:
    """The run that a checkpoint waits for."""
    return item if kind in (CHILD, CHILD_RESULT) and isinstance(item, str) else None


# -- one run ----------------------------------------------------------------------------------------------


def run_view(run: Run, veil: Veil) -> dict[str, Any]:
    return {
        "id": run.run_id,
        **_of_run(run),
        "paused_at": moment(run.paused_at if run.is_paused else None),
        "error": error_view(run.error, veil, traceback=True),
        "input": veil.value(run.input),
        "result": veil.value(run.result) if run.status == statuses.COMPLETED else None,
        "at": None,
    }


def step_view(step: Step, veil: Veil, workers: dict[str, str] | None = None) -> dict[str, Any]:
    return {
        **fields(step, "path kind status attempts lost executor parked total opened remaining"),
        **_times(step),
        **addressed(step.path),
        **_about(step, veil),
        "worker": (workers or {}).get(step.executor or ""),
        "waits_for": _waits_of(step),
        "wait": None,
        "child": child_of(step.kind, step.item),
    }


def _about(step: Step, veil: Veil) -> dict[str, Any]:
    last = step.last_error
    return {
        "progress": veil.hidden(step.progress),
        "description": veil.text(str(step.description)) if step.description else None,
        "error": error_view(step.error, veil),
        "last_error": {"type": last.type, "message": veil.text(last.message), "traceback": None} if last else None,
    }


def _times(step: Step) -> dict[str, Any]:
    return {
        **moments(step, "created_at started_at completed_at due_at timeout_at heartbeat_at"),
        "queue_time": step.queue_time,
        "duration": step.duration if not step.is_composite else _open_for(step),
    }


def _open_for(step: Step) -> float | None:
    """No attempt starts a composite: its time counts from when it was opened."""
    return None if step.completed_at is None else (step.completed_at - step.created_at).total_seconds()


def _waits_of(step: Step) -> str | None:
    if step.completed_at is not None:
        return None
    what = {statuses.PENDING: "worker", statuses.WAITING_RETRY: "retry", statuses.WAITING: waits_for(step.kind)}
    return what.get(step.status)


def attempt_view(one: Attempt, run_id: str, veil: Veil, *, traceback: bool = False) -> dict[str, Any]:
    return {
        **fields(one, "path attempt outcome executor"),
        **moments(one, "started_at ended_at"),
        "error": error_view(one.error, veil, traceback=traceback),
        "task_id": attempt_id(run_id, one.path, one.attempt),
    }
