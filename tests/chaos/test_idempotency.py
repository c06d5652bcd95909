"""Idempotency keys on a fleet, some of whose workers are killed."""

from __future__ import annotations

import pytest

from rival_client import Rival
from tests.support.chaos import Ledger, assert_nothing_is_stuck, wait_for_all
from tests.support.workers import Workers, wait_until

#: The first attempt kills its worker before the side effect.
PAY = """
class NoInput:
    result = None

def charge(run, input):
    if not os.path.exists(LEDGER + ".killed"):
        open(LEDGER + ".killed", "w").close()
        time.sleep(input["seconds"])
        os.kill(os.getpid(), signal.SIGKILL)
    return note(run, NoInput)

name = "pay"
steps = [step(charge, idempotency_key="charge:{input.order}")]
"""


@pytest.mark.slow
def test_50_runs_with_one_key_and_a_killed_owner_have_one_side_effect_and_50_results(
    rival: Rival, workers: Workers, ledger: Ledger
) -> None:
    file = ledger.workflow(PAY)
    [doomed] = workers.start(file, concurrency=4)
    run_ids = [rival.run("pay", {"order": 7, "seconds": 2}, f"r{n:02}").run_id for n in range(50)]
    wait_until(lambda: _waiting(rival) >= 10, 20, "others wait for the owner")
    assert doomed.process.wait(20) < 0
    owner = rival.idempotency_key("charge:7", workflow="pay", step="charge")
    assert owner is not None
    assert owner.status == "running"
    workers.start(file, 2, concurrency=2)
    wait_for_all(rival, run_ids)
    [effect] = ledger.lines()
    assert effect.run_id == owner.run_id, "a takeover keeps the owner"
    assert {rival.result(run_id).result for run_id in run_ids} == {effect.nonce}
    assert_nothing_is_stuck(rival)


def _waiting(rival: Rival) -> int:
    found = rival.idempotency_key("charge:7", workflow="pay", step="charge")
    return 0 if found is None else found.waiting
