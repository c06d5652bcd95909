"""One run as text for a terminal: its facts, steps, attempts, history, timeline and logs."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from rich.console import Console
from rich.text import Text

from rival_client.api.client import Rival
from rival_client.errors import UnknownWorkflow
from rival_client.model import statuses
from rival_client.model.rebuild import status_changes
from rival_client.model.records import RunState
from rival_client.model.run_entries import HistoryEntry, LogEntry
from rival_client.model.step_records import Attempt
from rival_client.model.workflow_info import WorkflowInfo
from rival_workers.cli.display.formats import (
    error_text,
    labels_text,
    one_line,
    printable,
    seconds_text,
    status_text,
    time_text,
    took,
)
from rival_workers.cli.display.output import table
from rival_workers.cli.display.step_lines import step_rows
from rival_workers.cli.display.tracebacks import show_tracebacks
from rival_workers.drawing import run_charts
from rival_workers.drawing.run_charts import RunTree
from rival_workers.engine.plan import Plan
from rival_workers.engine.policies import load_policies

#: The maximum number of lines of a timeline.
TRACKS = 200
#: The legend of a timeline.
SPAN_TITLE = "░ queued  █ ran  · waited  ╌ waited for a retry"
#: A for_each or loop with more items or iterations is one line, unless --all is given.
MANY = 10


def plan_of(rival: Rival, state: RunState) -> Plan:
    """The plan of the run; an empty one if it is no longer registered."""
    with suppress(UnknownWorkflow):
        for info in rival.versions(state.workflow):
            if info.version == state.version:
                return load_policies(info.name, info.plan, info.policies).plan
    return Plan(nodes=())


def step_names(info: WorkflowInfo) -> list[str]:
    return [str(node["name"]) for node in info.plan.get("nodes", [])]


def show_run(
    out: Console,
    state: RunState,
    plan: Plan,
    history: Sequence[HistoryEntry] | None,
    logs: Sequence[LogEntry] | None,
    timeline: Sequence[HistoryEntry] | None = None,
    *,
    every: bool = False,
    full: bool = False,
) -> None:
    _facts(out, state)
    columns = ("step", "status", "attempts", "queued", "took", "")
    _section(out, "steps", columns, step_rows(state, RunTree(plan)))
    if state.attempts:
        rows = [_attempt(attempt) for attempt in state.attempts]
        _section(out, "attempts", ("step", "attempt", "outcome", "took", "error"), rows)
    show_tracebacks(out, state, every=every, full=full)
    if history is not None:
        _section(out, "history", ("time", "after", "step", "what", "took", "by", ""), _entries(history))
    if timeline is not None:
        _section(out, "timeline", ("step", SPAN_TITLE, "ran", "waited", "status"), _timeline(timeline))
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
        ("result", one_line(state.result, 2000) if state.status == statuses.COMPLETED else ""),
        ("failed at", state.failed_step),
        ("error", error_text(state.error, 2000)),
        ("parked", state.parked),
        ("labels", labels_text(state.labels)),
        ("singleton", state.singleton),
        ("gathered", None if state.gathered is None else f"{state.gathered} starts"),
        ("begins", "" if state.due_at is None or state.started_at else time_text(state.due_at)),
        ("deadline", "" if state.deadline_at is None else time_text(state.deadline_at)),
        ("queue", state.queue),
        ("priority", "" if state.priority == "normal" else state.priority),
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


def _attempt(attempt: Attempt) -> tuple[Any, ...]:
    lasted = None if attempt.started_at is None else (attempt.ended_at - attempt.started_at).total_seconds()
    return attempt.path, attempt.attempt, attempt.outcome, seconds_text(lasted), error_text(attempt.error)


def _entries(history: Sequence[HistoryEntry]) -> list[tuple[Any, ...]]:
    """Rows of the history, with the time since the first entry and how long the step had its previous status."""
    since: dict[str, dt.datetime] = {}
    rows = []
    for entry in history:
        took = None
        for path, _ in status_changes(entry):
            took = (entry.at - since.get(path, entry.at)).total_seconds() if path == entry.path else took
            since[path] = entry.at
        after = (entry.at - history[0].at).total_seconds()
        detail = one_line(entry.detail, 200) if entry.detail else ""
        event = (time_text(entry.at), f"+{after:.3f}", entry.path or "", entry.what)
        rows.append((*event, seconds_text(took or None), entry.by or "", detail))
    return rows


def _timeline(history: Sequence[HistoryEntry]) -> list[tuple[Any, ...]]:
    now = dt.datetime.now(dt.UTC)
    began, ended = run_charts.span(history, now)
    tracks = run_charts.tracks(history)
    rows: list[tuple[Any, ...]] = []
    for track in tracks[:TRACKS]:
        ran, waited = seconds_text(track.seconds("running", now) or None), seconds_text(_waited(track, now))
        rows.append((track.path, run_charts.bar(track, began, ended), ran, waited, status_text(track.status)))
    if len(tracks) > TRACKS:
        rows.append((f"… and {len(tracks) - TRACKS:,} more (--json has all)", "", "", "", ""))
    return rows


def _waited(track: run_charts.Track, now: dt.datetime) -> float | None:
    return sum(track.seconds(status, now) for status in run_charts.SYMBOLS if status != statuses.RUNNING) or None


def _log(line: LogEntry) -> tuple[Any, ...]:
    fields = "".join(f" {key}={one_line(value)}" for key, value in line.fields.items())
    return time_text(line.at), line.path, line.attempt, line.level, line.message + fields
