"""The statuses that runs and steps can have. Apart from the tables, so that what only reads records needs no SQL."""

from __future__ import annotations

RUN_TERMINAL = ("completed", "failed", "cancelled")
STEP_TERMINAL = ("completed", "skipped", "failed", "cancelled")
RUN_ACTIVE = ("pending", "running", "suspended")
RUN_STATUSES = (*RUN_ACTIVE, *RUN_TERMINAL)
STEP_STATUSES = ("pending", "running", "waiting_retry", "waiting", *STEP_TERMINAL)
