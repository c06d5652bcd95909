"""Records as the JSON of the API: runs, steps, attempts, errors. One serialiser for all answers, so that no two pages
can say different things about the same row.
"""

from __future__ import annotations

from typing import Any

from rival_client.broker.message import attempt_id
from rival_client.model import statuses
from rival_client.model.kinds import CHILD, CHILD_RESULT, waits_for
from rival_client.model.records import Run
from rival_client.model.step_records import Attempt, Step
from rival_client.sql.reads.capped_counts import Count
from rival_client.sql.reads.run_rows import RunRow
from rival_workers.dashboard.graph import addressed
from rival_workers.dashboard.values import fields, measured, moment, moments
from rival_workers.dashboard.veil import Veil


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


# -- one run ----------------------------------------------------------------------------------------------


def run_view(run: Run, veil: Veil) -> dict[str, Any]:
    return {
        "id": run.run_id,
        **of_run(run),
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
        "duration": measured(step.duration) if not step.is_composite else _open_for(step),
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


def of_run(run: RunRow | Run) -> dict[str, Any]:
    parent = {"run": run.parent_run_id, "step": run.parent_path}
    return {
        **fields(run, "workflow version status parked failed_step"),
        **moments(run, "created_at started_at completed_at"),
        "parent": parent if run.parent_run_id is not None else None,
    }


def child_of(kind: str, item: Any) -> str | None:
    """The run that a checkpoint waits for."""
    return item if kind in (CHILD, CHILD_RESULT) and isinstance(item, str) else None
