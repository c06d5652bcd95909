"""The content of messages: look at a run, at a step, or at an event. A message carries ids and a token, nothing else;
everything that matters is read from the database. The format of messages is in `celery_format`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rival_client.model.record import record
from rival_client.model.starts.queues import USUAL_ROUTE, Route

RUN_TASK = "rival.run"
ATTEMPT_TASK = "rival.attempt"
EVENT_TASK = "rival.event"


@record(frozen=True)
class StepMessage:
    """The content of a message. `path` None: start the run."""

    run_id: str
    path: str | None
    token: int
    workflow: str
    version: str
    attempt: int = 1
    lost: int = 0
    countdown: float = 0.0
    route: Route = USUAL_ROUTE

    @property
    def task(self) -> str:
        return RUN_TASK if self.path is None else ATTEMPT_TASK

    @property
    def task_id(self) -> str:
        return self.run_id if self.path is None else attempt_id(self.run_id, self.path, self.attempt, self.lost)

    @property
    def args(self) -> list[Any]:
        """With its route, unless it is the usual one: a message may have to be published again."""
        more = [self.route.queue, self.route.level] if self.route else []
        return [self.run_id, self.path, self.token, self.workflow, self.version, *more]

    @property
    def label(self) -> str:
        return self.workflow if self.path is None else step_label(self.workflow, self.path)

    @property
    def described(self) -> str:
        return f"(run={self.run_id!r}, step={self.path!r}, attempt={self.attempt})"


@dataclass(frozen=True)
class EventMessage:
    """A worker looks for the steps that wait for this event."""

    event_id: str
    topic: str
    countdown: float = 0.0
    run_id: str | None = None
    path: str | None = None
    attempt: int = 1

    task = EVENT_TASK
    #: Events are delivered from the fleet's own queue.
    route = USUAL_ROUTE

    @property
    def task_id(self) -> str:
        return f"event:{self.event_id}"

    @property
    def args(self) -> list[Any]:
        return [self.event_id]

    @property
    def label(self) -> str:
        return f"event.{self.topic}"

    @property
    def described(self) -> str:
        return f"(event={self.event_id!r})"


AnyMessage = StepMessage | EventMessage


def attempt_id(run_id: str, path: str, attempt: int, lost: int = 0) -> str:
    """One Celery task id per attempt: a try that was lost and is started again is another one."""
    return f"{run_id}:{path}:{attempt}" + (f"+{lost}" if lost else "")


def step_label(workflow: str, path: str) -> str:
    """The name of the step in Flower: without indexes, since each name becomes a metric label there."""
    return f"{workflow}.{path.rsplit('/', 1)[-1]}"
