"""The output of commands: tables for people, JSON with stable keys for programs, errors on stderr."""

from __future__ import annotations

import dataclasses
import datetime as dt
import json
import sys
from collections.abc import Iterable, Sequence
from typing import Any, Self

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from rival_client.model import statuses
from rival_client.model.records import Run, RunState
from rival_client.model.step_records import Step
from rival_client.model.workflow_info import WorkflowInfo

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")

#: The width without a terminal, so that nothing is cut.
_UNLIMITED = 2000
_MAX_ERROR = 10_000
_STYLES = {
    statuses.PENDING: "dim",
    statuses.RUNNING: "cyan",
    statuses.WAITING_RETRY: "yellow",
    statuses.WAITING: "yellow",
    statuses.SUSPENDED: "yellow",
    statuses.COMPLETED: "green",
    statuses.SKIPPED: "green dim",
    statuses.FAILED: "red",
    statuses.CANCELLED: "magenta",
    # of `rival doctor`
    "ok": "green",
    "warn": "yellow",
    "fail": "red",
}


def console(*, stderr: bool = False) -> Console:
    stream = sys.stderr if stderr else sys.stdout
    return Console(file=stream, width=None if stream.isatty() else _UNLIMITED, highlight=False, soft_wrap=True)


class ProgressLine:
    """One line on stderr that is replaced while a command works, and removed at the end. On a terminal only, and never
    with --json."""

    def __init__(self, as_json: bool) -> None:
        self._is_shown = sys.stderr.isatty() and not as_json

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._write("")

    def show(self, text: str) -> None:
        self._write(one_line(printable(text), max(20, console(stderr=True).width - 1)))

    def _write(self, text: str) -> None:
        if self._is_shown:
            click.echo(f"\r\x1b[K{text}", nl=False, err=True)


def print_json(value: Any) -> None:
    click.echo(json.dumps(value, default=_encode, ensure_ascii=False, indent=2))


def print_json_line(value: Any) -> None:
    click.echo(json.dumps(value, default=_encode, ensure_ascii=False))


def print_error(error: Exception, message: str, as_json: bool) -> None:
    # It may quote an argument of any length.
    message = message if len(message) <= _MAX_ERROR else f"{message[:_MAX_ERROR]}…"
    if as_json:
        problems = {"problems": error.problems} if hasattr(error, "problems") else {}
        shown = {"error": {"type": type(error).__name__, "message": message, **problems}}
        click.echo(json.dumps(shown, default=_encode, ensure_ascii=False), err=True)
    else:
        click.echo(f"rival: {printable(message)}", err=True)


def _encode(value: Any) -> Any:
    if isinstance(value, dt.datetime):
        return value.isoformat()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    return str(value)


# -- records as JSON --------------------------------------------------------------------------------------


def run_as_json(run: Run) -> dict[str, Any]:
    found = dataclasses.asdict(run)
    if isinstance(run, RunState):
        found["steps"] = [step_as_json(step) for step in run.steps]
    return found


def step_as_json(step: Step) -> dict[str, Any]:
    computed = ("description", "duration", "queue_time", "retry_count")
    return dataclasses.asdict(step) | {name: getattr(step, name) for name in computed}


def workflow_as_json(info: WorkflowInfo) -> dict[str, Any]:
    return dataclasses.asdict(info) | {"step_count": info.step_count}


# -- records as text --------------------------------------------------------------------------------------


def table(columns: Sequence[str], rows: Iterable[Sequence[Any]], title: str | None = None) -> Table:
    """Cells are text, never markup: values of users must not format the terminal or move its cursor."""
    made = Table(title=title, title_justify="left", box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for name in columns:
        made.add_column(name, no_wrap=name in ("run", "status", "attempts", "took"))
    for row in rows:
        made.add_row(*(cell if isinstance(cell, Text) else Text(printable(str(cell))) for cell in row))
    return made


def status_text(status: str) -> Text:
    return Text(status, style=_STYLES.get(status.strip(), ""))


def printable(text: str) -> str:
    """Replaces control characters, which a terminal would interpret."""
    return "".join(c if c.isprintable() or c in "\n\t" else "\ufffd" for c in text)


def one_line(value: Any, limit: int = 100) -> str:
    text = value if isinstance(value, str) else json.dumps(value, default=_encode, ensure_ascii=False)
    text = " ".join(text.split())
    return text if len(text) <= limit else text[: limit - 1] + "…"


def error_text(error: dict[str, Any] | None, limit: int = 200) -> str:
    if error is None:
        return ""
    text = one_line(f"{error.get('type', 'Error')}: {error.get('message', '')}", limit)
    return f"{text} (not retried: {error['not_retried']})" if error.get("not_retried") else text


def labels_text(labels: dict[str, str] | None) -> str:
    return one_line(" ".join(f"{name}={value}" for name, value in (labels or {}).items()), 120)


def seconds_text(seconds: float | None) -> str:
    if seconds is None:
        return ""
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 120:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"


def time_text(when: dt.datetime | None) -> str:
    return "" if when is None else when.astimezone().strftime("%Y-%m-%d %H:%M:%S")


def took(run: Run) -> float | None:
    """Seconds from the start of the run to its end."""
    if run.started_at is None or run.completed_at is None:
        return None
    return (run.completed_at - run.started_at).total_seconds()
