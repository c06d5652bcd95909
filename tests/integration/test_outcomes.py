"""No attempt without an outcome, on a real fleet and on every pool."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from sqlalchemy import text

from rival_client import Rival
from rival_client.model.statuses import RUN_TERMINAL
from rival_client.settings import Settings
from rival_workers.store.health import read_problems
from tests.support.chaos import assert_nothing_is_stuck, wait_for_all
from tests.support.effort import long_but_first
from tests.support.output import is_printed
from tests.support.workers import Workers, wait_until

POOLS = long_but_first("prefork", "threads", "solo")

ENDS = """
import asyncio, sys
from rival_workers import create_workflow, step

async def exits():
    sys.exit(3)

async def exits_in_a_task():
    task = asyncio.create_task(exits())
    await asyncio.sleep(0.05)
    task.result()

async def stops():
    asyncio.get_running_loop().stop()
    await asyncio.sleep(0)
    raise ValueError("stopped")

def interrupts():
    raise KeyboardInterrupt

def leaves():
    sys.exit()

class Odd(BaseException):
    pass

Odd.__qualname__ = "O\\0dd"

def odd():
    raise Odd

async def fine():
    await asyncio.sleep(0.01)
    return "fine"

for name, function in list(globals().items()):
    if callable(function) and name in ("exits", "exits_in_a_task", "stops", "interrupts", "leaves", "odd", "fine"):
        create_workflow(name.replace("_", "-")).step(function).register()
"""
NAMES = ["exits", "exits-in-a-task", "stops", "interrupts", "leaves", "odd"]


@pytest.mark.slow
@pytest.mark.parametrize("pool", POOLS)
def test_steps_that_end_the_process_fail_and_later_steps_run_on_every_pool(
    rival: Rival, workers: Workers, tmp_path: Path, pool: str
) -> None:
    (tmp_path / "ends.py").write_text(ENDS)
    [worker] = workers.start(tmp_path / "ends.py", pool=pool, concurrency=2)
    ended = [rival.run(name).run_id for name in NAMES * 2]
    after = [rival.run("fine").run_id for _ in range(4)]
    wait_for_all(rival, ended + after, timeout=60)
    assert {rival.result(run_id).status for run_id in ended} == {"failed"}
    assert {rival.result(run_id).result for run_id in after} == {"fine"}
    assert {step.lost for run_id in ended + after for step in rival.state(run_id).steps} == {0}
    assert worker.process.poll() is None
    assert_nothing_is_stuck(rival)


WORKS = """
import time

def work(input):
    time.sleep(0.05)
    return input["n"]

def more(last_step):
    return last_step.result

name = "works"
steps = [work, more]
"""


def limited_role(rival: Rival, settings: Settings) -> str:
    """The fleet's own role: privileges cannot be taken from a superuser."""
    role = f"limited_{settings.queue.replace('-', '_')}"
    with rival.database.autocommit() as connection:
        connection.execute(text(f"CREATE ROLE {role} LOGIN"))
        connection.execute(text(f"GRANT ALL ON ALL TABLES IN SCHEMA public TO {role}"))
    return role


@pytest.mark.slow
@pytest.mark.parametrize("pool", POOLS)
def test_a_revoked_privilege_leaves_no_run_stuck_on_any_pool(
    rival: Rival, settings: Settings, workers: Workers, tmp_path: Path, pool: str
) -> None:
    (tmp_path / "works.py").write_text(WORKS)
    role = limited_role(rival, settings)
    workers.env["RIVAL_DATABASE_URL"] = settings.require_database().replace("//rival@", f"//{role}@")
    try:
        workers.start(tmp_path / "works.py", pool=pool, concurrency=2)
        run_ids = [rival.run("works", {"n": n}).run_id for n in range(20)]
        wait_until(lambda: any(rival.state(run_id).status in RUN_TERMINAL for run_id in run_ids), 30)
        with rival.database.autocommit() as connection:
            connection.execute(text(f"REVOKE UPDATE ON rival_steps FROM {role}"))
        time.sleep(3)  # for longer than a lease
        with rival.database.autocommit() as connection:
            connection.execute(text(f"GRANT UPDATE ON rival_steps TO {role}"))
        wait_for_all(rival, run_ids, timeout=60)
        assert [rival.result(run_id).result for run_id in run_ids] == list(range(20))
        assert_nothing_is_stuck(rival)
    finally:
        for worker in workers.all:
            worker.kill()
        with rival.database.autocommit() as connection:
            connection.execute(text(f"DROP OWNED BY {role}"))
            connection.execute(text(f"DROP ROLE {role}"))


BLOCKS = """
import asyncio, time
from rival_workers import create_workflow

async def blocks(input):
    time.sleep(input["seconds"])
    return "late"

async def fine():
    await asyncio.sleep(0.01)
    return "fine"

create_workflow("blocks").step(blocks).register()
create_workflow("fine").step(fine).register()
"""


@pytest.mark.slow
def test_a_blocked_event_loop_is_reported_and_holds_up_no_later_async_step(
    rival: Rival, workers: Workers, tmp_path: Path
) -> None:
    (tmp_path / "blocks.py").write_text(BLOCKS)
    workers.start(tmp_path / "blocks.py", pool="threads", concurrency=3)
    blocked = rival.run("blocks", {"seconds": 25}).run_id
    wait_until(lambda: rival.state(blocked).status == "running")
    wait_until(lambda: read_problems(rival.database), 25, "the executor says that its loop is blocked")
    [problem] = read_problems(rival.database)
    line = 1 + BLOCKS.splitlines().index('    time.sleep(input["seconds"])')
    blocked_at = f"{tmp_path / 'blocks.py'}:{line} in blocks"
    said = f"w0@test (pid … on …): the event loop of async steps has been blocked for … s at {blocked_at}"
    assert is_printed([said], [problem])
    fine = rival.run("fine").run_id
    wait_for_all(rival, [fine], timeout=10)
    assert rival.state(blocked).status == "running"
    wait_for_all(rival, [blocked], timeout=40)
    assert rival.result(blocked).result == "late"
    wait_until(lambda: not read_problems(rival.database), 15)
