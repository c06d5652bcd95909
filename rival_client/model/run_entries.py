"""Entries of the history and of the log of a run, as plain values."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class HistoryEntry:
    at: dt.datetime
    what: str
    path: str | None
    detail: dict[str, Any]
    #: Who or what did it: an executor, an operator, another run, an event, the keeper.
    by: str | None = None
    #: Its place in the history: give the last one's as `after` to read what follows it.
    id: int = field(default=0, compare=False)


@dataclass(frozen=True)
class LogEntry:
    at: dt.datetime
    level: str
    path: str
    attempt: int
    message: str
    fields: dict[str, Any]
    #: Its place in the run's log: give the last one's as `after` to go on from there.
    id: int = 0
