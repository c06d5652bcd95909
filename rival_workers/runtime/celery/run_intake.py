"""Hands messages that start runs, and those of lanes, from the broker's transport to the step scheduler, past Celery's
request and tracer. So the outcomes of all lanes of a `for_each` that a process has are committed together.

Only attempts send Celery events, and those that do not run as tasks of Celery send their own, so nothing is missed. All
other messages, and those that are to wait for a time, go to Celery.
"""

from __future__ import annotations

import base64
import json
from typing import Any

from celery.worker import state

from rival_client.broker.message import ATTEMPT_TASK, RUN_TASK, StepMessage
from rival_workers.engine.paths import place_of
from rival_workers.runtime.attempt.coordinator import Coordinator
from rival_workers.runtime.attempt.runs_in_hand import RunInHand
from rival_workers.runtime.attempt.step_scheduler import StepScheduler
from rival_workers.runtime.attempt.telemetry import counters
from rival_workers.runtime.celery.untrusted_messages import MAX_BODY, Garbage, read_call


class RunIntake:
    def __init__(self, scheduler: StepScheduler, coordinator: Coordinator) -> None:
        self._scheduler, self._coordinator = scheduler, coordinator

    @property
    def room(self) -> int:
        """How many messages this process can begin now."""
        return self._scheduler.size - self._scheduler.in_hand - len(state.reserved_requests)

    def take(self, envelope: dict[str, Any]) -> bool:
        """`envelope`: as `clean_envelope` returns it. False: it is for Celery. Garbage: it is not a message."""
        headers = envelope["headers"]
        task = headers.get("task")
        if task not in (RUN_TASK, ATTEMPT_TASK) or headers.get("eta") is not None:
            return False
        message = read_call(task, _body(envelope), headers)
        assert isinstance(message, StepMessage)
        if message.path is not None and "[" not in message.path:
            return False
        # Celery's own counts, which `inspect stats` and the watch for a stalled consumer read.
        state.all_total_count[0] += 1
        state.total_count[task] += 1
        counters["messages"] += 1
        self._scheduler.add(self._in_hand(message))
        return True

    def _in_hand(self, message: StepMessage) -> RunInHand:
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
