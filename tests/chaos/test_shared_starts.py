"""Batches, labels and delays on a fleet whose workers are killed: every input is in exactly one run that completes."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from rival_client import Rival
from tests.support.workers import Workers, wait_until

COLLECT = """
def collect(input, run):
    return {"values": input, "tenant": run.labels["tenant"]}

steps = [collect]
"""
PRODUCERS, EACH = 4, 50


@pytest.mark.slow
def test_no_input_of_a_batch_is_lost_or_used_twice(rival: Rival, workers: Workers, tmp_path: Path) -> None:
    (tmp_path / "collect.py").write_text(COLLECT)
    [first, _] = workers.start(tmp_path, count=2, concurrency=4)

    def produce(producer: int) -> None:
        for number in range(EACH):
            value, tenant = producer * EACH + number, {"tenant": f"t{producer % 2}"}
            rival.run("collect", value, batch=7, within=0.3, key=tenant["tenant"], labels=tenant)

    with ThreadPoolExecutor(PRODUCERS + 1) as pool:
        producing = [pool.submit(produce, producer) for producer in range(PRODUCERS)]
        wait_until(lambda: rival.runs(status="completed"), 60)
        first.kill()
        for one in producing:
            one.result(timeout=120)
    wait_until(lambda: not rival.active_runs(), 60)
    found = rival.runs(limit=1000)
    assert {run.status for run in found} == {"completed"}
    assert sorted(value for run in found for value in run.result["values"]) == list(range(PRODUCERS * EACH))
    for tenant in ("t0", "t1"):
        mine = rival.runs(labels={"tenant": tenant}, limit=1000)
        assert {run.result["tenant"] for run in mine} == {tenant}
        assert all(len(run.result["values"]) <= 7 for run in mine)
