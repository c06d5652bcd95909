"""When a wait polls again, and when it gives up. Pure arithmetic; it does not wait itself."""

from __future__ import annotations

from dataclasses import dataclass

from rival_client.model.checks import amounts

DEFAULT_TIMEOUT = 300.0
DEFAULT_POLL_INTERVAL = 0.25


@dataclass(frozen=True)
class WaitSchedule:
    """The run-end notification may wake a wait earlier; polling at this interval always works."""

    deadline: float | None
    poll_interval: float

    @classmethod
    def starting(cls, now: float, timeout: float | None, poll_interval: float) -> WaitSchedule:
        return cls(None if timeout is None else now + timeout, amounts.poll_interval(poll_interval))

    def pause(self, now: float) -> float | None:
        """Seconds until the next look; None when the time is up."""
        if self.deadline is None:
            return self.poll_interval
        left = self.deadline - now
        return None if left <= 0 else min(self.poll_interval, left)
