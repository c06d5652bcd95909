"""A granted ticket: what may start, and its message. `rival_client.sql.gates` grants tickets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rival_client.broker.message import StepMessage
from rival_client.db.limit_tables import tickets
from rival_client.model.starts.priorities import HIGH
from rival_client.model.starts.queues import USUAL_ROUTE, Route


@dataclass(frozen=True)
class Grant:
    """A ticket that may start, `countdown` seconds from now. `path` "": a run that begins."""

    run_id: str
    path: str
    token: int
    workflow: str
    version: str
    attempt: int = 1
    lost: int = 0
    countdown: float = 0.0
    route: Route = USUAL_ROUTE

    @property
    def message(self) -> StepMessage:
        step = (self.run_id, self.path or None, self.token, self.workflow, self.version)
        # In front of what has not waited yet: a slot is reserved for it.
        return StepMessage(*step, self.attempt, self.lost, self.countdown, Route(self.route.queue, HIGH))


#: What the message of a granted ticket says.
SAID = tuple(
    tickets.c[name] for name in ("run_id", "path", "token", "workflow", "version", "attempt", "lost", "queue", "level")
)


def as_grant(row: Any, wait: float = 0.0) -> Grant:
    said: tuple[Any, ...] = (*tuple(row)[:7], wait, Route(row.queue, row.level))
    return Grant(*said)
