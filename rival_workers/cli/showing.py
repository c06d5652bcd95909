"""One run, laid out for a person: what it is, its steps, its attempts, its history and logs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from rich.console import Console
from rich.text import Text

from rival_client.client import Rival
from rival_client.errors import UnknownWorkflow
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
from rival_workers.drawing.run_trees import RunTree
from rival_workers.engine.plan import Plan

#: A for_each or loop with more turns is one line, unless all are asked for.
MANY = 10


def plan_of(rival: Rival, state: RunState) -> Plan:
    """The plan that the run follows; an empty one if nobody knows it any more."""
    with suppress(UnknownWorkflow):
        for info in rival.versions(state.workflow):
            if info.version == state.version:
                return Plan.load(info.plan)
    return Plan(nodes=())


def step_names(info: WorkflowInfo) -> list[str]:
    return [str(node["name"]) for node in info.plan.get("nodes", [])]


def show_run(
    out: Console,
    state: RunState,
    plan: Plan,
    history: Sequence[HistoryEntry] | None,
    logs: Sequence[LogEntry] | None,
) -> None:
    _facts(out, state)
    columns = ("step", "status", "attempts", "queued", "took", "")
    _section(out, "steps", columns, _steps(state, RunTree(plan)))
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
        ("at", "" if state.is_terminal else state.current_step),
        ("paused", f"since {time_text(state.paused_at)}" if state.is_paused else ""),
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


def _steps(state: RunState, tree: RunTree) -> list[tuple[Any, ...]]:
    rows: dict[str, tuple[Any, ...]] = {}
    for step in state.steps:
        depth = tree.depth(step.path)
        rows[step.path] = _step(step, depth)
        if step.path in state.folded:
            # Where the first of them would be.
            rows[f"{step.path}[0]"] = _turns(step, state.folded[step.path], depth + 1)
    return [rows[path] for path in sorted(rows, key=tree.key)]


def _turns(composite: Step, counts: Mapping[str, int], depth: int) -> tuple[Any, ...]:
    """The turns that are not shown, by what became of them."""
    begun = composite.opened if composite.kind == "for_each" else None
    words = _words(counts, begun)
    count = sum(counts.values())
    return f"{_indent(depth)}{composite.path}[…]", "", "", "", f"{count:,} turns: {words} (--all shows each)"


def _words(counts: Mapping[str, int], begun: int | None) -> str:
    done = counts.get("completed", 0) + counts.get("skipped", 0)
    failed, cancelled = counts.get("failed", 0), counts.get("cancelled", 0)
    still_open = sum(counts.values()) - done - failed - cancelled
    running = still_open if begun is None else max(0, begun - (sum(counts.values()) - still_open))
    numbers = {
        "done": done, "failed": failed, "cancelled": cancelled, "running": running, "to come": still_open - running,
    }  # fmt: skip
    return ", ".join(f"{number:,} {what}" for what, number in numbers.items() if number)


def _indent(depth: int) -> str:
    return "  " * depth


def status_of(step: Step) -> str:
    """A composite's row waits while its steps run."""
    return "running" if step.is_composite and step.status == "waiting" else step.status


def _step(step: Step, depth: int) -> tuple[Any, ...]:
    attempts = "" if step.is_composite else f"{step.attempts}" + (f" (+{step.lost} lost)" if step.lost else "")
    remark = error_text(step.error) or step.description or (f"parked: {step.parked}" if step.parked else "")
    if step.error is None and step.last_error is not None:
        remark += f" (attempt {step.last_error.attempt}: {step.last_error.type})"
    if step.status == "waiting_retry":
        remark = f"again at {time_text(step.due_at)}; {remark}"
    elif step.status == "waiting" and not step.is_composite:
        remark = f"{_waits_for(step)} {remark}".strip()
    path = _indent(depth) + step.path
    times = seconds_text(step.queue_time), seconds_text(_lasted(step))
    return path, status_text(status_of(step)), attempts, *times, one_line(remark, 200)


def _waits_for(step: Step) -> str:
    until = "" if step.due_at is None else f"until {time_text(step.due_at)}"
    match step.kind:
        case "child":
            return f"for run {step.item}" if step.item else "for a run"
        case "wait" | "flow_wait":
            return f"for an event {until}".strip()
        case _:
            return until


def _lasted(step: Step) -> float | None:
    """A composite is not started by anybody: it lasts from when it was reached."""
    if not step.is_composite or step.completed_at is None:
        return step.duration
    return (step.completed_at - step.created_at).total_seconds()


def _attempt(attempt: Attempt) -> tuple[Any, ...]:
    lasted = None if attempt.started_at is None else (attempt.ended_at - attempt.started_at).total_seconds()
    return attempt.path, attempt.attempt, attempt.outcome, seconds_text(lasted), error_text(attempt.error)


def _entry(entry: HistoryEntry) -> tuple[Any, ...]:
    return time_text(entry.at), entry.path or "", entry.what, one_line(entry.detail) if entry.detail else ""


def _log(line: LogEntry) -> tuple[Any, ...]:
    fields = "".join(f" {key}={one_line(value)}" for key, value in line.fields.items())
    return time_text(line.at), line.path, line.attempt, line.level, line.message + fields
