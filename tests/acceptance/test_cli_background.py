"""Commands in the background of a shell without job control, which starts them with SIGINT ignored: Ctrl-C ends them
nevertheless. `rival dev` that runs is in `test_cli_fleet.py`."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from tests.acceptance.conftest import Cli, family
from tests.acceptance.test_cli_fleet import gone
from tests.support.workers import READY, wait_until


@pytest.mark.slow
def test_a_worker_in_the_background_stops_by_ctrl_c(cli: Cli) -> None:
    command = f"trap '' INT; exec {sys.executable} -m rival_workers.cli worker -w flows.py -p 1"
    with (cli.directory / "worker.log").open("wb") as log:
        worker = subprocess.Popen(["sh", "-c", command], cwd=cli.directory, env=cli.env, stdout=log, stderr=log)
    cli.wait_for("worker.log", READY)
    everybody = family(worker.pid)
    worker.send_signal(signal.SIGINT)
    assert worker.wait(40) == 0, cli.log("worker.log")
    assert gone(everybody), cli.log("worker.log")


@pytest.mark.parametrize("command", ["worker", "dev"])
def test_a_fleet_that_loads_its_workflows_in_the_background_stops_by_ctrl_c(cli: Cli, command: str) -> None:
    (cli.directory / "slow.py").write_text("import time\nopen('loading', 'w').close()\ntime.sleep(50)\n")
    program = f"trap '' INT; exec {sys.executable} -m rival_workers.cli {command} -w slow.py"
    with (cli.directory / "fleet.log").open("wb") as log:
        fleet = subprocess.Popen(["sh", "-c", program], cwd=cli.directory, env=cli.env, stdout=log, stderr=log)
    wait_until((cli.directory / "loading").exists, 30, "the file is loaded")
    fleet.send_signal(signal.SIGINT)
    assert fleet.wait(20) == 130, cli.log("fleet.log")
