"""Records as the JSON of commands, with stable keys."""

from __future__ import annotations

import dataclasses
from typing import Any

from rival_client.model.records import Run, RunState
from rival_client.model.step_records import Step
from rival_client.model.workflow_info import WorkflowInfo


def run_as_json(run: Run) -> dict[str, Any]:
    found = dataclasses.asdict(run)
    if isinstance(run, RunState):
        found["steps"] = [step_as_json(step) for step in run.steps]
    return found


def step_as_json(step: Step) -> dict[str, Any]:
    computed = ("description", "duration", "queue_time", "retry_count")
    return dataclasses.asdict(step) | {name: getattr(step, name) for name in computed}


def workflow_as_json(info: WorkflowInfo) -> dict[str, Any]:
    return dataclasses.asdict(info) | {"step_count": info.step_count}
