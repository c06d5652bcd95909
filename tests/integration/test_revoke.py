"""A task id that is revoked in Flower or with `celery control revoke` fails that attempt at once, on every pool; the
run goes on as its step says, and no later attempt is blocked.
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from celery import Celery

from rival_client import Rival
from rival_client.settings import Settings
from tests.support.effort import long_but_first
from tests.support.workers import WorkerProcess, Workers, wait_until

WORKFLOWS = """
import os, time
from pathlib import Path
from rival_workers import StepError, create_workflow, step

PLACE = Path({place!r})

def flaky(run):
    if run.attempt == 1:
        raise StepError("not yet", behavior="retry")
    return run.attempt

def hangs(run):
    if not (PLACE / f"go-{{run.id}}").exists():
        (PLACE / f"began-{{run.id}}").touch()
        time.sleep(600 if {kills} else 6)
        (PLACE / f"ended-{{run.id}}").touch()
    return "done"

def quick(): return 1

create_workflow("flaky").step(flaky, max_attempts=3, base_delay=5).register()
create_workflow("hangs").step(quick).step(hangs).register()
create_workflow("quick").step(quick).register()
"""


class Fleet:
    def __init__(self, rival: Rival, worker: WorkerProcess, app: Celery, place: Path) -> None:
        self.rival, self.worker, self.app, self.place = rival, worker, app, place

    def status(self, run_id: str) -> str:
        return self.rival.state(run_id).status

    def active(self) -> list[str]:
        """What the worker itself says that it runs."""
        name = f"{self.worker.name}@test"
        found = self.app.control.inspect([name], timeout=5).active() or {name: [{"id": "?"}]}
        return [task["id"] for task in found[name]]

    def assert_works(self) -> None:
        run = self.rival.run("quick")
        assert self.rival.wait("quick", run.run_id, timeout=20).status == "completed"
        assert self.worker.process.poll() is None

    def revoked_in_history(self, run_id: str) -> list[tuple[str | None, str | None]]:
        return [(entry.path, entry.by) for entry in self.rival.history(run_id) if entry.what == "revoked"]


@pytest.fixture
def fleet(request: pytest.FixtureRequest, rival: Rival, workers: Workers, settings: Settings, tmp_path: Path) -> Fleet:
    pool, budget = request.param
    file = tmp_path / "workflows.py"
    file.write_text(WORKFLOWS.format(place=str(tmp_path), kills=pool == "prefork"))
    # A long grace: no keeper helps with a message that a worker has dropped.
    [worker] = workers.start(file, pool=pool, concurrency=2, continuation_budget=budget, ring_grace=600)
    return Fleet(rival, worker, Celery(broker=settings.broker_url, set_as_current=False), tmp_path)


#: Pool and budget for continuations.
FLEETS = [("prefork", 1), *(pytest.param((pool, 1), marks=pytest.mark.long) for pool in ("threads", "solo"))]


@pytest.mark.slow
@pytest.mark.parametrize("fleet", FLEETS, indirect=True, ids=str)
@pytest.mark.parametrize("terminate", long_but_first(False, True), ids=["revoke", "terminate"])
def test_a_revoked_retry_fails_and_the_next_one_runs(fleet: Fleet, terminate: bool) -> None:
    run_id = fleet.rival.run("flaky").run_id
    wait_until(lambda: [s.status for s in fleet.rival.state(run_id).steps] == ["waiting_retry"])
    fleet.app.control.revoke(f"{run_id}:flaky:2", terminate=terminate)
    wait_until(lambda: fleet.revoked_in_history(run_id) == [("flaky", "revoke")], 10)
    result = fleet.rival.wait("flaky", run_id, timeout=40)
    assert (result.status, result.result) == ("completed", 3)
    assert [a.outcome for a in fleet.rival.state(run_id).attempts] == ["failed", "revoked", "completed"]
    fleet.assert_works()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fleet", "signal"),
    [(("threads", 1), None), (("threads", 0), None), (("prefork", 1), "SIGKILL"), (("prefork", 0), None)],
    indirect=["fleet"],
    ids=str,
)
def test_a_running_attempt_is_terminated_and_its_id_can_come_again(fleet: Fleet, signal: str | None) -> None:
    """As a message of its own, and continued in place."""
    run_id = fleet.rival.run("hangs").run_id
    wait_until(lambda: (fleet.place / f"began-{run_id}").exists())
    children = {child.pid for child in fleet.worker.children()}
    fleet.app.control.revoke(f"{run_id}:hangs:1")
    fleet.app.control.revoke([f"{run_id}:hangs:2", f"{run_id}:quick:1", "nobody", "x:y:1"], terminate=True)
    fleet.assert_works()
    assert fleet.status(run_id) == "running", "only that attempt is meant, and only to be terminated"
    began = time.monotonic()
    fleet.app.control.revoke(f"{run_id}:hangs:1", terminate=True, **({"signal": signal} if signal else {}))
    result = fleet.rival.wait("hangs", run_id, timeout=20)
    assert time.monotonic() - began < 15
    assert (result.status, result.failed_step) == ("failed", "hangs")
    assert result.error is not None
    assert result.error["type"] == "TaskRevoked"
    assert fleet.revoked_in_history(run_id) == [("hangs", "revoke")]
    if signal == "SIGKILL":
        wait_until(lambda: {child.pid for child in fleet.worker.children()} - children, 20, "another child")
    (fleet.place / f"go-{run_id}").touch()
    fleet.rival.retry(run_id)
    again = fleet.rival.wait("hangs", run_id, timeout=20)
    assert (again.status, again.result) == ("completed", "done"), "the id is the same, the attempt is not"
    fleet.assert_works()
    if children:
        # Its process was ended, or the step was interrupted in it: both processes are free.
        wait_until(lambda: fleet.active() == [], 20, "no attempt is running any more")
        assert not (fleet.place / f"ended-{run_id}").exists()


@pytest.mark.slow
@pytest.mark.parametrize("fleet", [("threads", 1)], indirect=True, ids=str)
def test_ids_that_were_revoked_long_before_block_nothing(fleet: Fleet) -> None:
    fleet.app.control.revoke(["early", "early:quick:1", "early:quick:1+1"], terminate=True)
    fleet.assert_works()
    fleet.rival.run("quick", run_id="early")
    assert fleet.rival.wait("quick", "early", timeout=20).status == "completed"
