"""Runs of Rival's that are measured from their start to their end."""

from __future__ import annotations

import time

from rival_client import Rival


def run_to_its_end(producer: Rival, workflow: str, its_input: dict[str, object], limit_s: float) -> str:
    """Its id. A run that does not complete measures nothing."""
    run_id = producer.run(workflow, its_input).run_id
    result = producer.wait(workflow, run_id, timeout=limit_s)
    if result.status != "completed":
        raise RuntimeError(f"run {run_id} of {workflow} ended {result.status}: {result.error}")
    return run_id


def run_together(producer: Rival, workflow: str, its_input: dict[str, object], count: int, limit_s: float) -> float:
    """Seconds from the start of so many runs to the end of the last one."""
    began = time.monotonic()
    started = producer.run_many(workflow, [its_input] * count)
    for run in started:
        result = producer.wait(workflow, run.run_id, timeout=limit_s)
        if result.status != "completed":
            raise RuntimeError(f"run {run.run_id} of {workflow} ended {result.status}: {result.error}")
    return time.monotonic() - began
