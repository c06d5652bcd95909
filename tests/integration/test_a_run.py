"""The thinnest real path: a producer, Postgres, Redis and a Celery worker."""

from __future__ import annotations

from pathlib import Path

import pytest

from rival_client import Rival
from tests.support.effort import long_but_first
from tests.support.workers import Workers

WORKFLOW = """
from pydantic import BaseModel
from rival_workers import StepError, step

class Input(BaseModel):
    tree_type: str

def find_tree(input):
    return {"tree_id": input.tree_type + "-123"}

def chop_tree(steps, state, run):
    if run.attempt < 2:
        raise StepError("blunt axe", behavior="retry")
    state.description = f"Chopped {steps.find_tree.result['tree_id']}"
    return {"pieces": 10}

async def stack_wood(last_step):
    return {"stacked": last_step.result["pieces"]}

steps = [find_tree, step(chop_tree, max_attempts=3, base_delay=0.05), stack_wood]
"""


@pytest.mark.parametrize("pool", long_but_first("threads", "prefork", "solo"))
@pytest.mark.parametrize("budget", [1, 0], ids=["continuation", "message-per-attempt"])
def test_a_run_goes_through_its_steps_to_its_result(
    rival: Rival, workers: Workers, tmp_path: Path, pool: str, budget: int
) -> None:
    file = tmp_path / "tree_processing.py"
    file.write_text(WORKFLOW)
    workers.start(file, pool=pool, concurrency=2, continuation_budget=budget)
    started = rival.run("tree-processing", {"tree_type": "oak"})
    result = rival.wait("tree-processing", started.run_id, timeout=20)
    assert (result.status, result.result) == ("completed", {"stacked": 10})
    assert result.results["find_tree"] == {"tree_id": "oak-123"}
    state = rival.state(started.run_id)
    assert [s.attempts for s in state.steps] == [1, 2, 1]
    assert state.steps[1].description == "Chopped oak-123"


def test_producer_and_worker_meet_behind_a_key_prefix(rival: Rival, workers: Workers, tmp_path: Path) -> None:
    file = tmp_path / "tree_processing.py"
    file.write_text(WORKFLOW)
    workers.start(file, concurrency=2, key_prefix="team:", continuation_budget=0)
    with Rival(settings=rival.settings.with_(key_prefix="team:")) as producer:
        for n in range(2):
            producer.run("tree-processing", {"tree_type": "oak"}, f"run-{n}")
            # The keeper would come after ten seconds.
            assert producer.wait("tree-processing", f"run-{n}", timeout=8).status == "completed"


COLLECTOR = """
import gc

def look():
    gc.collect()
    return {"frozen": gc.get_freeze_count() > 10_000, "threshold": gc.get_threshold()[0]}

steps = [look]
"""


@pytest.mark.parametrize("pool", ["threads", "prefork"])
def test_the_garbage_collector_leaves_out_what_the_start_has_made(
    rival: Rival, workers: Workers, tmp_path: Path, pool: str
) -> None:
    (tmp_path / "collector.py").write_text(COLLECTOR)
    workers.start(tmp_path / "collector.py", pool=pool, concurrency=2)
    assert rival.run("collector").wait(timeout=20).result == {"frozen": True, "threshold": 10_000}
