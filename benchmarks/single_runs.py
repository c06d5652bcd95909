"""One run of Rival's, measured from its start to its end."""

from __future__ import annotations

from rival_client import Rival


def run_to_its_end(producer: Rival, workflow: str, its_input: dict[str, object], limit_s: float) -> str:
    """Its id. A run that does not complete measures nothing."""
    run_id = producer.run(workflow, its_input).run_id
    result = producer.wait(workflow, run_id, timeout=limit_s)
    if result.status != "completed":
        raise RuntimeError(f"run {run_id} of {workflow} ended {result.status}: {result.error}")
    return run_id
