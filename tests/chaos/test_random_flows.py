"""Random flows on a fleet whose workers are killed: each comes to what plain asyncio makes of the order of its ends.
RIVAL_RANDOM_FLOWS=100 makes many.
"""

from __future__ import annotations

import os
import random
import signal
import time

import pytest

from rival_client import Rival
from tests.support.chaos import assert_nothing_is_stuck, wait_for_all
from tests.support.random_flow_env import received
from tests.support.random_flows import GivenOrder, make_program, reference
from tests.support.workers import ROOT, Workers

COUNT = int(os.environ.get("RIVAL_RANDOM_FLOWS", "8"))
SEED = os.environ.get("RIVAL_SEED", "1")
#: For the workers only: the file replaces a method of the flows' event loop when it is imported.
PROGRAMS = ROOT / "tests" / "support" / "random_flow_file.py"


@pytest.mark.slow
@pytest.mark.timeout(120 + 10 * COUNT)
def test_random_flows_do_what_asyncio_does_although_their_workers_are_killed(rival: Rival, workers: Workers) -> None:
    dice = random.Random(SEED)
    programs = {f"p{number}": make_program(f"{SEED}:k{number}", races=number % 2 == 1) for number in range(COUNT)}
    workers.start(PROGRAMS, 2, lease=2)
    for run_id, program in programs.items():
        rival.run("program", program, run_id=run_id)
    for _ in range(3):
        time.sleep(dice.uniform(0.2, 0.8))
        os.killpg(workers.all[-1].process.pid, signal.SIGKILL)
        # A new process has another hash seed.
        workers.start(PROGRAMS, 1, lease=2)
    wait_for_all(rival, programs, timeout=100 + 5 * COUNT)
    for run_id, program in programs.items():
        state = rival.state(run_id)
        assert state.status == "completed", (run_id, state.error)
        result, trace, nodes = state.result
        assert [result, trace] == reference(program, GivenOrder(received(rival.database, run_id, nodes))), program
    assert_nothing_is_stuck(rival)
