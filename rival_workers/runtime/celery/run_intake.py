"""Hands messages that start runs from the broker's transport to the step scheduler, past Celery's request and tracer.

Only attempts send Celery events, and those that follow a start in place send their own, so nothing is missed. All other
messages, and those that are to wait for a time, go to Celery.
"""

from __future__ import annotations

import base64
import json
from typing import Any

from celery.worker import state

from rival_client.broker.message import RUN_TASK, StepMessage
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
        if headers.get("task") != RUN_TASK or headers.get("eta") is not None:
            return False
        message = read_call(RUN_TASK, _body(envelope), headers)
        assert isinstance(message, StepMessage)
        # Celery's own counts, which `inspect stats` and the watch for a stalled consumer read.
        state.all_total_count[0] += 1
        state.total_count[RUN_TASK] += 1
        counters["messages"] += 1
        workflow = (message.workflow, message.version)
        begins = self._coordinator.beginning(message.run_id, message.token, *workflow)
        self._scheduler.add(RunInHand(begins, workflow))
        return True


def _body(envelope: dict[str, Any]) -> Any:
    body = envelope["body"]
    if len(body) > 2 * MAX_BODY:
        raise Garbage(f"a body of {len(body):,} bytes")
    if envelope["content-type"] != "application/json":
        raise Garbage("a body that is not JSON")
    return json.loads(base64.b64decode(body) if envelope["properties"]["body_encoding"] == "base64" else body)
