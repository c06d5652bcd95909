"""When a server that has died may be started again: at once, then later and later, then not any more."""

from __future__ import annotations

from dataclasses import dataclass, field

ATTEMPTS = 5
WITHIN = 60.0
FIRST_DELAY = 0.2


@dataclass
class RestartBudget:
    """At most `ATTEMPTS` restarts in any `WITHIN` seconds; time is a parameter."""

    deaths: list[float] = field(default_factory=list)

    def next_start(self, died_at: float) -> float | None:
        """When to start again after a death, or None when it has died too often."""
        self.deaths = [*(death for death in self.deaths if died_at - death < WITHIN), died_at]
        earlier = len(self.deaths) - 1
        if earlier >= ATTEMPTS:
            return None
        return died_at if earlier == 0 else died_at + FIRST_DELAY * 2 ** (earlier - 1)
