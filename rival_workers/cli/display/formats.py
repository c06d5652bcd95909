"""Values as commands show them: short text for people, and the encoding of what JSON does not have."""

from __future__ import annotations

import dataclasses
import datetime as dt
import json
from typing import Any

from rich.text import Text

from rival_client.model import statuses
from rival_client.model.records import Run

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


def encode(value: Any) -> Any:
    if isinstance(value, dt.datetime):
        return value.isoformat()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    return str(value)


def status_text(status: str) -> Text:
    return Text(status, style=_STYLES.get(status.strip(), ""))


def printable(text: str) -> str:
    """Replaces control characters, which a terminal would interpret."""
    return "".join(c if c.isprintable() or c in "\n\t" else "\ufffd" for c in text)


def one_line(value: Any, limit: int = 100) -> str:
    text = value if isinstance(value, str) else json.dumps(value, default=encode, ensure_ascii=False)
    text = " ".join(text.split())
    return text if len(text) <= limit else text[: limit - 1] + "…"


def counted(number: int, noun: str) -> str:
    """`1 run`, `2 runs`: for nouns that take an s."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


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
