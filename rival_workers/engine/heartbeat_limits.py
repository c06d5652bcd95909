"""Says which of its time limits a step has exceeded, and makes the error. Pure; all times are the database's."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import Any

from rival_client.model.durations import duration_text
from rival_client.model.policies.step_config import StepConfig

#: A limit is a sum of times, which databases round.
_ROUNDING = 0.001


@dataclass(frozen=True)
class HeartbeatState:
    """A step's heartbeats and its time limit, as read from its row."""

    #: The last heartbeat; the start, if there was none.
    last: dt.datetime
    limit: dt.datetime
    now: dt.datetime
    beaten: bool
    progress: Any = None

    @property
    def is_over(self) -> bool:
        return self.limit <= self.now

    def missed(self, heartbeat: float) -> bool:
        """Whether the limit that has passed is the heartbeat's, not the timeout of the whole attempt."""
        return (self.limit - self.last).total_seconds() >= heartbeat - _ROUNDING


def timeout_error(config: StepConfig, attempt: int, heartbeats: HeartbeatState | None) -> dict[str, Any]:
    """The error of an attempt that ran for too long, or had no heartbeat for too long."""
    if heartbeats is not None and config.heartbeat is not None and heartbeats.missed(config.heartbeat):
        return _missed(config.heartbeat, attempt, heartbeats)
    limit = f" of {duration_text(config.timeout)}" if config.timeout else ""
    return _error("StepTimeout", f"attempt {attempt} took longer than its timeout{limit}", attempt)


def deadline_error(config: StepConfig, attempt: int, heartbeats: HeartbeatState | None) -> dict[str, Any]:
    """The error of an external step that was not completed in time."""
    if heartbeats is not None and config.heartbeat is not None and heartbeats.missed(config.heartbeat):
        return _missed(config.heartbeat, attempt, heartbeats)
    within = f" within its deadline of {duration_text(config.deadline)}" if config.deadline else " in time"
    return _error("StepTimeout", f"no external system has completed attempt {attempt}{within}", attempt)


def _missed(heartbeat: float, attempt: int, heartbeats: HeartbeatState) -> dict[str, Any]:
    seen = f"the last was at {heartbeats.last:%Y-%m-%d %H:%M:%S} UTC" if heartbeats.beaten else "it sent none at all"
    return _error(
        "HeartbeatMissed", f"attempt {attempt} sent no heartbeat for {duration_text(heartbeat)}; {seen}", attempt
    )


def _error(kind: str, message: str, attempt: int) -> dict[str, Any]:
    return {"type": kind, "message": message, "attempt": attempt}
