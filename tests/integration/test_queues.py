"""Queues and priorities on a real fleet: who runs what, also after a worker of one queue was killed."""

from __future__ import annotations

from pathlib import Path

import pytest

from rival_client import Rival
from rival_client.settings import Settings
from rival_workers.store import open_store
from rival_workers.store.health import read_unserved_queues
from tests.support.workers import Workers, wait_until

RENDER = """
import os
import time
from pathlib import Path
from rival_workers import step

def here():
    return os.getpid()

def render(ctx, input):
    Path(input["file"]).touch()
    while Path(input["file"] + ".hold").exists():
        time.sleep(0.05)
    return os.getpid()

steps = [here, step(render, queue="gpu"), step(render, name="again", queue="gpu"), step(here, name="last")]
"""
ORDER = """
from pathlib import Path

def note(input):
    with open(input["file"], "a") as out:
        out.write(input["name"] + "\\n")

steps = [note]
"""


@pytest.mark.parametrize("pool", ["threads", "prefork", "solo"])
def test_each_step_runs_on_a_worker_of_its_queue(rival: Rival, workers: Workers, tmp_path: Path, pool: str) -> None:
    (tmp_path / "render.py").write_text(RENDER)
    [own] = workers.start(tmp_path, pool=pool, concurrency=2)
    [gpu] = workers.start(tmp_path, pool=pool, concurrency=2, queues="gpu")
    results = [rival.run("render", {"file": str(tmp_path / f"{n}")}).wait(timeout=60).results for n in range(3)]
    pids = {name: {own.pid, *(c.pid for c in own.children())} for name in ("here", "last")}
    pids |= {name: {gpu.pid, *(c.pid for c in gpu.children())} for name in ("render", "again")}
    assert all(found[name] in pids[name] for found in results for name in pids)


def test_the_step_of_a_killed_worker_waits_for_another_worker_of_its_queue(
    rival: Rival, settings: Settings, workers: Workers, tmp_path: Path
) -> None:
    (tmp_path / "render.py").write_text(RENDER)
    file = tmp_path / "begun"
    (tmp_path / "begun.hold").touch()
    workers.start(tmp_path, ring_grace=1)
    [gpu] = workers.start(tmp_path, queues="gpu", ring_grace=1)
    run = rival.run("render", {"file": str(file)})
    wait_until(file.exists)
    gpu.kill()
    file.unlink()
    store = open_store(settings.require_database())
    wait_until(lambda: read_unserved_queues(store.database), timeout=30)
    [unserved] = read_unserved_queues(store.database)
    assert (unserved.queue, unserved.example) == ("gpu", f"run {run.run_id} step render")
    store.close()
    assert not file.exists(), "a worker of another queue has begun it"
    (tmp_path / "begun.hold").unlink()
    [other] = workers.start(tmp_path, queues="gpu,default", ring_grace=1)
    result = run.wait(timeout=60)
    assert result.results["render"] == other.pid
    assert result.results["again"] == other.pid


def test_high_runs_start_before_those_that_wait_already(rival: Rival, workers: Workers, tmp_path: Path) -> None:
    (tmp_path / "order.py").write_text(ORDER)
    [worker] = workers.start(tmp_path, pool="solo", concurrency=1)
    worker.freeze()
    file = str(tmp_path / "order.txt")
    started = [
        rival.run("order", {"file": file, "name": name}, priority=name)  # type: ignore[arg-type]
        for name in ("low", "normal", "high", "low", "normal", "high")
    ]
    worker.thaw()
    for one in started:
        assert one.wait(timeout=60).status == "completed"
    found = Path(file).read_text().split()
    # The worker may have had one message before it was frozen.
    assert found[1:] == sorted(found[1:], key=["high", "normal", "low"].index)
