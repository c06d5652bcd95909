"""kill -9 everywhere: a child, a whole worker, between commit and publish; and steps that kill their own process."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import psutil
import pytest
from sqlalchemy import select, text, update

from rival_client import Rival
from rival_client.db.run_tables import runs
from rival_client.db.types import after
from rival_workers.dev.broker_server import BrokerServer
from tests.support.chaos import (
    Ledger,
    assert_chain_is_right,
    assert_nothing_is_stuck,
    mixed_fleet,
    start_many,
    wait_for_all,
)
from tests.support.effort import long_but_first
from tests.support.locks import until_blocked
from tests.support.workers import Workers, wait_until

ONE_LONG = """
name = "long"
steps = [step(work, name="only")]
"""
DEADLY = """
name = "deadly"
steps = [step(deadly, name="boom", max_attempts=2), step(work, name="after")]
"""


@pytest.mark.slow
def test_a_prefork_child_killed_before_its_worker_has_reached_the_broker_is_replaced(
    own_broker: BrokerServer, rival: Rival, workers: Workers, ledger: Ledger
) -> None:
    own_broker.stop()
    [worker] = workers.start(ledger.workflow(), pool="prefork", concurrency=2, wait=False)
    wait_until(lambda: len(worker.children()) == 2, 40)
    children = worker.children()
    children[0].kill()
    wait_until(lambda: children[0].status() == psutil.STATUS_ZOMBIE)
    own_broker.start()
    worker.wait_ready()
    run_ids = start_many(rival, 6)
    wait_for_all(rival, run_ids)
    assert_chain_is_right(rival, run_ids, ledger)
    wait_until(lambda: len(worker.children()) == 2)
    assert worker.process.poll() is None


@pytest.mark.long
@pytest.mark.slow
def test_killing_prefork_children_again_and_again_loses_nothing(rival: Rival, workers: Workers, ledger: Ledger) -> None:
    fleet = mixed_fleet(workers, ledger.workflow(), *({"pool": "prefork", "continuation_budget": n} for n in (1, 0)))
    run_ids = start_many(rival, 50, seconds=0.03)
    for _ in range(4):
        time.sleep(0.3)
        for worker in fleet:
            for victim in _pool_children(worker.pid)[:1]:
                victim.kill()
    wait_for_all(rival, run_ids)
    assert_chain_is_right(rival, run_ids, ledger)


@pytest.mark.slow
@pytest.mark.parametrize("pool", long_but_first("threads", "prefork"))
def test_killing_a_whole_worker_loses_nothing(rival: Rival, workers: Workers, ledger: Ledger, pool: str) -> None:
    first, _ = workers.start(ledger.workflow(), 2, pool=pool, concurrency=2)
    run_ids = start_many(rival, 50, seconds=0.03)
    wait_until(lambda: len(ledger.lines()) > 20)
    first.kill()
    wait_for_all(rival, run_ids)
    assert_chain_is_right(rival, run_ids, ledger)


@pytest.mark.slow
def test_workers_that_die_between_commit_and_publish_lose_nothing(
    rival: Rival, workers: Workers, ledger: Ledger
) -> None:
    points = ({"failpoint": point} for point in ("after_finish_commit", "after_retry_commit", ""))
    *doomed, _ = mixed_fleet(workers, ledger.workflow(), *({"continuation_budget": 0, **point} for point in points))
    run_ids = start_many(rival, 40)
    assert [worker.process.wait(15) for worker in doomed] == [-signal.SIGKILL, -signal.SIGKILL]
    wait_for_all(rival, run_ids)
    assert_chain_is_right(rival, run_ids, ledger)


@pytest.mark.slow
@pytest.mark.parametrize("pool", long_but_first("prefork", "threads"))
def test_a_dead_workers_attempt_is_taken_over_within_the_lease_and_two_seconds(
    rival: Rival, workers: Workers, ledger: Ledger, pool: str
) -> None:
    both = workers.start(ledger.workflow(ONE_LONG), 2, pool=pool, concurrency=1)
    # As if on another machine: only the lease shows that its process is dead.
    with rival.database.transaction() as connection:
        connection.exec_driver_sql("UPDATE rival_executors SET host = 'elsewhere'")
    [run_id] = start_many(rival, 1, "long", seconds=3)
    wait_until(lambda: ledger.lines(run_id))
    [line] = ledger.lines(run_id)
    next(worker for worker in both if line.pid in _family(worker.pid)).kill()
    wait_until(lambda: len(ledger.lines(run_id)) == 2, timeout=2 + 2, what="taken over within lease + 2 s")
    wait_for_all(rival, [run_id])
    [step] = rival.state(run_id).steps
    assert (step.status, step.attempts, step.lost) == ("completed", 1, 1)


@pytest.mark.slow
def test_a_step_that_kills_its_process_fails_after_three_forgiven_losses_and_others_go_on(
    rival: Rival, workers: Workers, ledger: Ledger
) -> None:
    files = os.pathsep.join(map(str, (ledger.workflow(DEADLY), ledger.workflow())))
    workers.start(files, pool="prefork", concurrency=2)
    [deadly] = start_many(rival, 1, "deadly")
    others = start_many(rival, 20, seconds=0.02)
    wait_for_all(rival, [deadly, *others])
    result = rival.result(deadly)
    assert (result.status, result.failed_step) == ("failed", "boom")
    assert result.error is not None
    assert result.error["type"] == "ExecutorLost"
    [boom] = rival.state(deadly).steps
    assert (boom.attempts, boom.lost) == (1, 3)
    assert [line.attempt for line in ledger.lines(deadly)] == [1, 1, 1, 1]
    assert_chain_is_right(rival, others, ledger)
    assert_nothing_is_stuck(rival)


STUCK = """
import re

def spin():
    while True:
        pass

def hold_the_lock():
    re.match(r"(a+)+$", "a" * 40 + "b")

def stuck(run, last_step):
    note(run, last_step)
    if run.attempt == 1:
        %(stuck)s()
    return {"nonce": "-", "count": 0}

name = "stuck-%(then)s"
steps = [step(stuck, timeout=1, on_timeout="%(then)s", max_attempts=2, base_delay=0.05, kill_on_timeout=True),
         step(work, name="after")]
"""


@pytest.mark.slow
@pytest.mark.parametrize("stuck", ["spin", "hold_the_lock"], ids=["in a busy loop", "holding the interpreter's lock"])
def test_a_stuck_step_is_killed_after_its_timeout_and_its_worker_goes_on(
    rival: Rival, workers: Workers, ledger: Ledger, stuck: str
) -> None:
    files = [ledger.workflow(), *(ledger.workflow(STUCK % {"stuck": stuck, "then": how}) for how in ("stop", "retry"))]
    workers.start(os.pathsep.join(map(str, files)), pool="prefork", concurrency=2)
    [stop], [retry] = start_many(rival, 1, "stuck-stop"), start_many(rival, 1, "stuck-retry")
    wait_until(lambda: len({line.run_id for line in ledger.lines()}) == 2)
    pids = [line.pid for line in ledger.lines()]
    others = start_many(rival, 3)
    wait_until(lambda: not any(map(psutil.pid_exists, pids)), timeout=1 + 2 + 2, what="the stuck processes are gone")
    wait_for_all(rival, [stop, retry, *others])
    assert (rival.result(stop).status, rival.result(retry).status) == ("failed", "completed")
    for run_id in (stop, retry):
        attempt = rival.state(run_id).attempts[0]
        assert attempt.outcome == "timed_out"
        assert attempt.error is not None
        assert attempt.error["type"] == "StepTimeout"
    assert_chain_is_right(rival, others, ledger)


STUCK_FLOW = """
import os
from rival_workers import flow

def first_time_stuck():
    new = not os.path.exists(%(marker)r)
    with open(%(marker)r, "a") as marker:
        print(os.getpid(), file=marker)
    while new:
        pass
    return "at last"

@flow("stuck-flow")
def stuck_flow(ctx):
    return ctx.step(first_time_stuck, timeout=1, on_timeout="retry", max_attempts=2, base_delay=0.05,
                    kill_on_timeout=True)
"""


@pytest.mark.slow
def test_a_stuck_step_of_a_flow_is_killed_too_and_tried_again(rival: Rival, workers: Workers, tmp_path: Path) -> None:
    marker, file = tmp_path / "pids", tmp_path / "stuck_flow.py"
    file.write_text(STUCK_FLOW % {"marker": str(marker)})
    workers.start(str(file), pool="prefork", concurrency=1)
    [run_id] = start_many(rival, 1, "stuck-flow")
    assert rival.wait("stuck-flow", run_id, timeout=30).result == "at last"
    [stuck, _] = map(int, marker.read_text().split())
    assert not psutil.pid_exists(stuck)
    assert [(row.path, row.attempts, row.lost) for row in rival.state(run_id).steps] == [
        ("stuck-flow", 1, 0),
        ("stuck-flow/first_time_stuck", 2, 0),
    ]


@pytest.mark.slow
def test_a_message_whose_child_was_killed_before_its_claim_is_published_again_at_once(
    rival: Rival, workers: Workers, ledger: Ledger
) -> None:
    """No keeper looks for it in time."""
    [worker] = workers.start(ledger.workflow(), pool="prefork", concurrency=1)
    [child] = _pool_children(worker.pid)
    child.suspend()
    run_ids = start_many(rival, 1)
    with rival.database.transaction() as connection:
        connection.execute(update(runs).where(runs.c.id == run_ids[0]).values(ring_at=after(600)))
    with rival.database.transaction() as connection:
        connection.execute(select(runs.c.id).where(runs.c.id == run_ids[0]).with_for_update())
        child.resume()
        until_blocked(rival.database)
        child.kill()
        child.wait(10)
        # Postgres would carry the claim out although nothing waits for its answer.
        blocked = "wait_event_type = 'Lock' AND datname = current_database()"
        connection.execute(text(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {blocked}"))
    wait_for_all(rival, run_ids, timeout=30)
    assert_chain_is_right(rival, run_ids, ledger)
    assert {step.lost for step in rival.state(run_ids[0]).steps} == {0}


def _pool_children(parent: int) -> list[psutil.Process]:
    return psutil.Process(parent).children()


def _family(parent: int) -> list[int]:
    return [parent, *(child.pid for child in psutil.Process(parent).children(recursive=True))]
