"""One run, laid out for a person: what it is, its steps, its attempts, its history and logs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.text import Text

from rival_client.records import Attempt, HistoryEntry, LogEntry, RunState, Step, WorkflowInfo
from rival_workers.cli.output import (
    error_text,
    one_line,
    printable,
    seconds_text,
    status_text,
    table,
    time_text,
    took,
)


def step_names(info: WorkflowInfo) -> list[str]:
    return [str(node["name"]) for node in info.plan.get("nodes", [])]


def show_run(
    out: Console, state: RunState, history: Sequence[HistoryEntry] | None, logs: Sequence[LogEntry] | None
) -> None:
    _facts(out, state)
    _section(out, "steps", ("step", "status", "attempts", "queued", "took", ""), [_step(step) for step in state.steps])
    if state.attempts:
        rows = [_attempt(attempt) for attempt in state.attempts]
        _section(out, "attempts", ("step", "attempt", "outcome", "took", "error"), rows)
    if history is not None:
        _section(out, "history", ("time", "step", "what", ""), [_entry(entry) for entry in history])
    if logs is not None:
        _section(out, "logs", ("time", "step", "attempt", "level", "message"), [_log(line) for line in logs])


def _facts(out: Console, state: RunState) -> None:
    facts: list[tuple[str, Any]] = [
        ("run", state.run_id),
        ("workflow", f"{state.workflow} (version {state.version})"),
        ("status", status_text(state.status)),
        ("created", time_text(state.created_at)),
        ("took", seconds_text(took(state))),
        ("input", one_line(state.input, 500)),
        ("result", one_line(state.result, 2000) if state.status == "completed" else ""),
        ("failed at", state.failed_step),
        ("error", error_text(state.error, 2000)),
        ("parked", state.parked),
    ]
    for name, value in facts:
        if value:
            out.print(Text(f"{name:10}", style="bold"), value if isinstance(value, Text) else Text(printable(value)))


def _section(out: Console, title: str, columns: tuple[str, ...], rows: list[tuple[Any, ...]]) -> None:
    out.print()
    if rows:
        out.print(table(columns, rows))
    else:
        out.print(f"no {title}")


def _step(step: Step) -> tuple[Any, ...]:
    attempts = f"{step.attempts}" + (f" (+{step.lost} lost)" if step.lost else "")
    remark = error_text(step.error) or step.description or (f"parked: {step.parked}" if step.parked else "")
    if step.error is None and step.last_error is not None:
        remark += f" (attempt {step.last_error.attempt}: {step.last_error.type})"
    if step.status == "waiting_retry":
        remark = f"again at {time_text(step.due_at)}; {remark}"
    times = seconds_text(step.queue_time), seconds_text(step.duration)
    return step.path, status_text(step.status), attempts, *times, one_line(remark, 200)


def _attempt(attempt: Attempt) -> tuple[Any, ...]:
    lasted = None if attempt.started_at is None else (attempt.ended_at - attempt.started_at).total_seconds()
    return attempt.path, attempt.attempt, attempt.outcome, seconds_text(lasted), error_text(attempt.error)


def _entry(entry: HistoryEntry) -> tuple[Any, ...]:
    return time_text(entry.at), entry.path or "", entry.what, one_line(entry.detail) if entry.detail else ""


def _log(line: LogEntry) -> tuple[Any, ...]:
    fields = "".join(f" {key}={one_line(value)}" for key, value in line.fields.items())
    return time_text(line.at), line.path, line.attempt, line.level, line.message + fields
