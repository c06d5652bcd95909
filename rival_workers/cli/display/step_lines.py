"""The steps of a run as lines of a table: where each is, what it waits for, how long it took."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rival_client.model import statuses
from rival_client.model.kinds import FLOW, FOR_EACH, waits_for
from rival_client.model.records import RunState
from rival_client.model.step_records import Step
from rival_workers.cli.display.formats import error_text, one_line, seconds_text, status_text, time_text
from rival_workers.drawing.run_charts import RunTree


def step_rows(state: RunState, tree: RunTree) -> list[tuple[Any, ...]]:
    rows: dict[str, tuple[Any, ...]] = {}
    for step in state.steps:
        depth = tree.depth(step.path)
        rows[step.path] = _step(step, depth)
        if step.path in state.folded:
            # Sorted like the first iteration.
            rows[f"{step.path}[0]"] = _folded(step, state.folded[step.path], depth + 1)
    return [rows[path] for path in sorted(rows, key=tree.key)]


def _folded(composite: Step, counts: Mapping[str, int], depth: int) -> tuple[Any, ...]:
    """One line that counts the items or iterations that are not shown, by status."""
    begun = composite.opened if composite.kind == FOR_EACH else None
    words = _words(counts, begun)
    count = sum(counts.values())
    what = {FOR_EACH: "items", FLOW: "checkpoints"}.get(composite.kind, "iterations")
    return f"{_indent(depth)}{composite.path}[…]", "", "", "", "", f"{count:,} {what}: {words} (--all shows each)"


def _words(counts: Mapping[str, int], begun: int | None) -> str:
    done = sum(counts.get(status, 0) for status in statuses.DONE)
    failed, cancelled = counts.get(statuses.FAILED, 0), counts.get(statuses.CANCELLED, 0)
    still_open = sum(counts.values()) - done - failed - cancelled
    running = still_open if begun is None else max(0, begun - (sum(counts.values()) - still_open))
    numbers = {
        "done": done,
        "failed": failed,
        "cancelled": cancelled,
        "running": running,
        "pending": still_open - running,
    }
    return ", ".join(f"{number:,} {what}" for what, number in numbers.items() if number)


def _indent(depth: int) -> str:
    return "  " * depth


def status_of(step: Step) -> str:
    """A composite's row has status `waiting` while its steps run."""
    return statuses.RUNNING if step.is_composite and step.status == statuses.WAITING else step.status


def _step(step: Step, depth: int) -> tuple[Any, ...]:
    attempts = "" if step.is_composite else f"{step.attempts}" + (f" (+{step.lost} lost)" if step.lost else "")
    remark = error_text(step.error) or step.description or (f"parked: {step.parked}" if step.parked else "")
    if step.error is None and step.last_error is not None:
        remark += f" (attempt {step.last_error.attempt}: {step.last_error.type})"
    if step.status == statuses.WAITING_RETRY:
        remark = f"retry at {time_text(step.due_at)}; {remark}"
    remark = "; ".join(part for part in (_waits_for(step), _progress(step), remark, _route(step)) if part)
    path = _indent(depth) + step.path
    times = seconds_text(step.queue_time), seconds_text(_lasted(step))
    return path, status_text(status_of(step)), attempts, *times, one_line(remark, 200)


def _route(step: Step) -> str:
    """Which workers run the step, if it says so itself."""
    queue = "" if step.queue is None else f"queue {step.queue}"
    priority = "" if step.priority is None else f"priority {step.priority}"
    return ", ".join(part for part in (queue, priority) if part)


def _waits_for(step: Step) -> str:
    if step.status != statuses.WAITING or step.is_composite:
        return ""
    due = step.timeout_at if step.waits_for_external else step.due_at
    until = "" if due is None else f"until {time_text(due)}"
    match waits_for(step.kind):
        case "external":
            return f"for an external system {until}".strip()
        case "child":
            return f"for run {step.item}" if step.item else "for a run"
        case "event":
            return f"for an event {until}".strip()
        case _:
            return until


def _progress(step: Step) -> str:
    if step.progress is None or step.completed_at is not None:
        return ""
    at = f" (at {time_text(step.heartbeat_at)})" if step.heartbeat_at else ""
    return f"progress {one_line(step.progress, 80)}{at}"


def _lasted(step: Step) -> float | None:
    """Seconds of a step. No attempt starts a composite: its time counts from when it was opened."""
    if not step.is_composite or step.completed_at is None:
        return step.duration
    return (step.completed_at - step.created_at).total_seconds()
