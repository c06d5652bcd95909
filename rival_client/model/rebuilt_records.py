"""A run and its steps as `rebuild` computes them from the history."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, field
from typing import Any

from rival_client.model import statuses


@dataclass
class RebuiltStep:
    kind: str
    status: str
    attempts: int = 0
    lost: int = 0
    result: Any = None
    state: dict[str, Any] | None = None
    error: dict[str, Any] | None = None
    item: Any = None
    executor: str | None = None
    started_at: dt.datetime | None = None
    completed_at: dt.datetime | None = None
    #: Of a flow's checkpoint: see the table.
    end_order: int | None = None
    begun_after: int | None = None
    #: What it did instead of failing.
    fallback: dict[str, Any] | None = None
    queue: str | None = None
    priority: str | None = None


@dataclass
class RebuiltRun:
    """A run according to its history; before its first entry it is pending."""

    status: str = statuses.PENDING
    workflow: str | None = None
    version: str | None = None
    input: Any = None
    labels: dict[str, str] | None = None
    policies: dict[str, Any] | None = None
    singleton: str | None = None
    #: By when it must have ended, as text.
    deadline: str | None = None
    result: Any = None
    error: dict[str, Any] | None = None
    failed_step: str | None = None
    paused: bool = False
    priority: str | None = None
    started_at: dt.datetime | None = None
    completed_at: dt.datetime | None = None
    steps: dict[str, RebuiltStep] = field(default_factory=dict)
