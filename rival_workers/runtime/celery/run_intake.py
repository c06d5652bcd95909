"""Hands messages to the step scheduler without Celery's request and tracer. From the broker's transport it takes those
that start runs, continue lanes or deliver events; from this process, those whose countdown is over, if there is room.

So the outcomes of all lanes of a `for_each` in one process are committed together, and a due retry needs no round trip
to the broker. Attempts that do not run as Celery tasks send their Celery events themselves. All other messages, and
messages with a countdown, go to Celery.
"""

from __future__ import annotations

import base64
import json
import threading
from typing import Any

from celery.worker import state

from rival_client.broker.message import ATTEMPT_TASK, EVENT_TASK, RUN_TASK, AnyMessage, EventMessage, StepMessage
from rival_client.model.starts.queues import ServedQueues
from rival_workers.engine.paths import place_of
from rival_workers.runtime.attempt.coordinator import Coordinator
from rival_workers.runtime.attempt.runs_in_hand import RunInHand
from rival_workers.runtime.attempt.step_scheduler import StepScheduler
from rival_workers.runtime.attempt.telemetry import counters
from rival_workers.runtime.celery.untrusted_messages import MAX_BODY, Garbage, read_call

#: The most messages per round trip. A process that took all that it has room for would leave nothing to the others.
MOST_AT_ONCE = 8


class RunIntake:
    def __init__(self, scheduler: StepScheduler, coordinator: Coordinator, served: ServedQueues) -> None:
        self._scheduler, self._coordinator, self._served = scheduler, coordinator, served
        #: Places for messages that the broker was asked for, and has not given yet.
        self._asked_for = 0
        #: The last answer had all that was asked for, so more messages wait.
        self._has_backlog = False
        self._lock = threading.Lock()

    @property
    def room(self) -> int:
        """How many messages this process can begin now."""
        return self._scheduler.size - self._scheduler.in_hand - len(state.reserved_requests)

    def ask(self) -> int:
        """How many messages to ask the broker for. While it may take long to answer, one place is left for a message
        whose countdown is over, unless there is only one. With a backlog, runs that have ended together are replaced
        together: each answer costs more than its messages do."""
        with self._lock:
            room = self.room if self._has_backlog else self.room - 1
            self._asked_for = min(max(1, room), MOST_AT_ONCE)
            return self._asked_for

    def was_answered(self, count: int) -> None:
        """So many of the messages that the broker was asked for are here; the others will not come."""
        with self._lock:
            self._has_backlog = count >= self._asked_for
            self._asked_for = 0

    def take(self, envelope: dict[str, Any]) -> bool:
        """`envelope`: as `clean_envelope` returns it. False: it is for Celery. Garbage: it is not a message."""
        headers = envelope["headers"]
        task = headers.get("task")
        if task not in (RUN_TASK, ATTEMPT_TASK, EVENT_TASK) or headers.get("eta") is not None:
            return False
        message = read_call(task, _body(envelope), headers)
        if isinstance(message, StepMessage) and message.path is not None and "[" not in message.path:
            return False
        # Celery's own counts, which `inspect stats` and the watch for a stalled consumer read.
        state.all_total_count[0] += 1
        state.total_count[task] += 1
        self._add(message)
        return True

    def take_due(self, message: AnyMessage) -> bool:
        """A message of this process whose countdown is over. False: it must be published."""
        with self._lock:
            is_welcome = self.room > self._asked_for and not self._coordinator.stopping
            if not is_welcome or message.route.queue not in self._served:
                return False
            self._add(message)
            return True

    def _add(self, message: AnyMessage) -> None:
        counters["messages"] += 1
        self._scheduler.add(self._in_hand(message))

    def _in_hand(self, message: AnyMessage) -> RunInHand:
        if isinstance(message, EventMessage):
            return RunInHand(self._coordinator.delivering(message.event_id), None)
        workflow = (message.workflow, message.version)
        if message.path is None:
            return RunInHand(self._coordinator.beginning(message.run_id, message.token, *workflow), workflow)
        attempts = self._coordinator.attempting(message.run_id, message.path, message.token, *workflow)
        return RunInHand(attempts, workflow, place_of(message.path))


def _body(envelope: dict[str, Any]) -> Any:
    body = envelope["body"]
    if len(body) > 2 * MAX_BODY:
        raise Garbage(f"a body of {len(body):,} bytes")
    if envelope["content-type"] != "application/json":
        raise Garbage("a body that is not JSON")
    return json.loads(base64.b64decode(body) if envelope["properties"]["body_encoding"] == "base64" else body)
