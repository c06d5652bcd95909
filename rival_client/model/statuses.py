"""The statuses of runs and steps, and groups of them. Other modules use these constants; a test reports statuses that
are written as literals. Separate from the tables, so that code that only reads records needs no SQL.
"""

from __future__ import annotations

from typing import Final, Literal

PENDING: Final = "pending"
RUNNING: Final = "running"
SUSPENDED: Final = "suspended"
WAITING_RETRY: Final = "waiting_retry"
WAITING: Final = "waiting"
COMPLETED: Final = "completed"
SKIPPED: Final = "skipped"
FAILED: Final = "failed"
CANCELLED: Final = "cancelled"

RunStatus = Literal["pending", "running", "suspended", "completed", "failed", "cancelled"]
StepStatus = Literal["pending", "running", "waiting_retry", "waiting", "completed", "skipped", "failed", "cancelled"]

RUN_TERMINAL: tuple[RunStatus, ...] = (COMPLETED, FAILED, CANCELLED)
STEP_TERMINAL: tuple[StepStatus, ...] = (COMPLETED, SKIPPED, FAILED, CANCELLED)
RUN_ACTIVE: tuple[RunStatus, ...] = (PENDING, RUNNING, SUSPENDED)
STEP_OPEN: tuple[StepStatus, ...] = (PENDING, RUNNING, WAITING_RETRY, WAITING)
RUN_STATUSES: tuple[RunStatus, ...] = (*RUN_ACTIVE, *RUN_TERMINAL)
STEP_STATUSES: tuple[StepStatus, ...] = (*STEP_OPEN, *STEP_TERMINAL)

#: The plan goes on after a step that has ended in one of these.
DONE: tuple[StepStatus, ...] = (COMPLETED, SKIPPED)
#: A retry opens what has ended in one of these.
STOPPED: tuple[StepStatus, ...] = (FAILED, CANCELLED)
