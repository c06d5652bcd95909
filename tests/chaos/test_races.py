"""Two operations on the same run at the same moment: one of them wins, and both return the truth."""

from __future__ import annotations

import multiprocessing
import random
import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from rival_client import Rival, RunConflict
from rival_client.settings import Settings
from tests.support.chaos import (
    Ledger,
    assert_chain_is_right,
    assert_nothing_is_stuck,
    mixed_fleet,
    start_many,
    wait_for_all,
)
from tests.support.effort import examples
from tests.support.threads import join_all
from tests.support.workers import Workers

RUNS = examples(16)


def _produce(settings: Settings, number: int, ready: Any, answers: Any) -> None:
    """One of two producers: the same run ids, the same input for the first half, another for the second."""
    with Rival(settings=settings) as rival:
        rival.workflows()
        ready.wait()
        for n in range(RUNS):
            same = n < RUNS // 2
            try:
                answer = rival.run("chain", {"by": "both" if same else number}, run_id=f"run-{n}").status
            except RunConflict:
                answer = "conflict"
            answers.put((n, answer))


@pytest.mark.slow
def test_two_producers_that_start_the_same_run_at_once_start_it_once(
    rival: Rival, settings: Settings, workers: Workers, ledger: Ledger
) -> None:
    workers.start(ledger.workflow(), 1)
    context = multiprocessing.get_context("spawn")
    ready, answers = context.Barrier(2), context.Queue()
    producers = [context.Process(target=_produce, args=(settings, n, ready, answers)) for n in range(2)]
    for producer in producers:
        producer.start()
    got: dict[int, list[str]] = {n: [] for n in range(RUNS)}
    for _ in range(2 * RUNS):
        n, answer = answers.get(timeout=30)
        got[n].append(answer)
    join_all(producers)
    for n, both in got.items():
        assert sorted(both) == (["running", "started"] if n < RUNS // 2 else ["conflict", "started"])
    run_ids = [f"run-{n}" for n in range(RUNS)]
    wait_for_all(rival, run_ids)
    assert_chain_is_right(rival, run_ids, ledger)
    assert len(ledger.lines()) == 5 * RUNS


@pytest.mark.slow
def test_a_cancel_at_any_moment_returns_the_truth(rival: Rival, workers: Workers, ledger: Ledger) -> None:
    """Against claims, finishes, retries and the run's end: the moments are spread over a run's whole life."""
    mixed_fleet(workers, ledger.workflow())
    dice = random.Random(11)

    def life(_: int) -> float:
        began = time.monotonic()
        wait_for_all(rival, start_many(rival, 1))
        return time.monotonic() - began

    def start_and_cancel(moment: float) -> tuple[str, bool]:
        [run_id] = start_many(rival, 1)
        time.sleep(moment)
        return run_id, rival.cancel(run_id)

    with ThreadPoolExecutor(12) as threads:
        usual = statistics.median(threads.map(life, range(36)))
        cancelled = dict(threads.map(start_and_cancel, [dice.uniform(0, 1.5 * usual) for _ in range(160)]))
    wait_for_all(rival, cancelled)
    for run_id, accepted in cancelled.items():
        state = rival.state(run_id)
        assert state.status == ("cancelled" if accepted else "completed")
        assert {step.status for step in state.steps} <= {"completed", "cancelled"}
        assert accepted or "cancelled" not in {step.status for step in state.steps}
        assert [entry.what for entry in rival.history(run_id)].count("cancelled") == (1 if accepted else 0)
    assert_chain_is_right(rival, [run_id for run_id, accepted in cancelled.items() if not accepted], ledger)
    assert_nothing_is_stuck(rival)
    assert 0 < sum(cancelled.values()) < len(cancelled), "the race is one: both sides win sometimes"
    assert not any(rival.cancel(run_id) for run_id in list(cancelled)[:5])


@pytest.mark.slow
def test_a_cancelled_runs_later_steps_never_start(rival: Rival, workers: Workers, ledger: Ledger) -> None:
    workers.start(ledger.workflow(), 1)
    run_ids = start_many(rival, 8, seconds=0.3)
    time.sleep(0.5)
    accepted = {run_id: rival.cancel(run_id) for run_id in run_ids}
    assert all(accepted.values())
    time.sleep(0.6)  # whatever was running when they were cancelled has ended
    seen = ledger.lines()
    time.sleep(1.0)
    assert ledger.lines() == seen
    assert {rival.state(run_id).status for run_id in run_ids} == {"cancelled"}
    assert_nothing_is_stuck(rival)
