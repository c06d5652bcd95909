"""Limits, their use and their queues, as plain values."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass


@dataclass(frozen=True)
class LimitRecord:
    """A limit: `max` at once, or with `per` so many starts in `per` seconds."""

    name: str
    max: int
    per: float | None
    burst: int
    #: What the definition says, and the operator who has set another maximum.
    defined_max: int | None
    set_by: str | None
    #: How many keys it has at this time, how many slots they use (a rate has none), and how many steps and runs wait.
    keys: int
    used: int
    waiting: int


@dataclass(frozen=True)
class LimitWaiter:
    """A step that waits, or with an empty path a run. `granted`: it may start, and its message is published."""

    key: str
    run_id: str
    path: str
    since: dt.datetime
    granted: bool


@dataclass(frozen=True)
class LimitKey:
    key: str
    max: int
    used: int
    waiting: int


@dataclass(frozen=True)
class LimitDetail:
    limit: LimitRecord
    #: The keys that are used most.
    keys: tuple[LimitKey, ...]
    #: Those that wait, the next one first.
    waiting: tuple[LimitWaiter, ...]
