"""A worker that sleeps past its lease and wakes up again: what it brings back is refused."""

from __future__ import annotations

import pytest
from sqlalchemy import select

from rival_client import Rival
from rival_client.db.fleet_tables import executors
from rival_client.db.types import now
from tests.support.chaos import Ledger, assert_nothing_is_stuck, start_many, wait_for_all
from tests.support.effort import long_but_first
from tests.support.workers import Workers, wait_until

LONG = """
name = "long"
steps = [step(work, name="only"), step(work, name="after")]
"""


@pytest.mark.slow
@pytest.mark.parametrize("pool", long_but_first("threads", "prefork"))
def test_a_frozen_workers_late_result_is_refused_and_its_successors_counts(
    rival: Rival, workers: Workers, ledger: Ledger, pool: str
) -> None:
    file = ledger.workflow(LONG)
    frozen, successor = workers.start(file, 2, pool=pool, concurrency=1)
    [run_id] = start_many(rival, 1, "long", seconds=1)
    wait_until(lambda: ledger.lines(run_id))
    [first] = ledger.lines(run_id)
    if _is_of(first.pid, successor.pid):
        frozen, successor = successor, frozen
    before = _executors(rival)
    frozen.freeze()
    wait_for_all(rival, [run_id])
    accepted = rival.result(run_id)
    assert accepted.status == "completed"
    assert accepted.results["only"]["nonce"] == ledger.lines(run_id, "only")[1].nonce

    frozen.thaw()
    frozen.wait_for_line(f"… run {run_id} step only attempt 1: late result refused, the step has moved on")
    assert rival.result(run_id) == accepted
    wait_until(lambda: any(entry.what == "late_result_refused" for entry in rival.history(run_id)))
    frozen.wait_for_line("… executor … was declared dead, since no heartbeat came; it continues under a new id")
    wait_until(lambda: len(_executors(rival) - before) == 1, what="the executor has a new id")
    assert_nothing_is_stuck(rival)

    successor.kill()
    [another] = start_many(rival, 1, "long")
    wait_for_all(rival, [another])
    assert rival.result(another).status == "completed"


def _executors(rival: Rival) -> set[str]:
    with rival.database.autocommit() as connection:
        return set(connection.scalars(select(executors.c.id).where(executors.c.expires_at > now())))


def _is_of(pid: int, worker: int) -> bool:
    import psutil

    return pid == worker or worker in [parent.pid for parent in psutil.Process(pid).parents()]
