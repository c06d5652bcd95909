"""The statuses that runs and steps can have. Apart from the tables, so that what only reads records needs no SQL."""

from __future__ import annotations

from typing import Literal

RunStatus = Literal["pending", "running", "suspended", "completed", "failed", "cancelled"]
StepStatus = Literal["pending", "running", "waiting_retry", "waiting", "completed", "skipped", "failed", "cancelled"]

RUN_TERMINAL: tuple[RunStatus, ...] = ("completed", "failed", "cancelled")
STEP_TERMINAL: tuple[StepStatus, ...] = ("completed", "skipped", "failed", "cancelled")
RUN_ACTIVE: tuple[RunStatus, ...] = ("pending", "running", "suspended")
RUN_STATUSES: tuple[RunStatus, ...] = (*RUN_ACTIVE, *RUN_TERMINAL)
STEP_STATUSES: tuple[StepStatus, ...] = ("pending", "running", "waiting_retry", "waiting", *STEP_TERMINAL)
