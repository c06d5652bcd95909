"""`rival worker`, `rival dev` and `rival flower`: they run until they are stopped, and leave nothing running."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

import psutil
import pytest

from rival_client import __version__
from tests.acceptance.conftest import Cli, family, processes_in, stop
from tests.support.effort import long_but_first
from tests.support.workers import READY, lines_like, wait_until


def test_the_installed_command_is_there() -> None:
    rival = Path(sys.executable).parent / "rival"
    said = subprocess.run([rival, "--version"], capture_output=True, text=True, check=True, timeout=60).stdout
    assert said == f"rival, version {__version__}\n"


def gone(processes: list[psutil.Process]) -> bool:
    return not any(process.is_running() and process.status() != psutil.STATUS_ZOMBIE for process in processes)


@pytest.mark.slow
@pytest.mark.parametrize(("number", "pool"), long_but_first((signal.SIGTERM, "prefork"), (signal.SIGINT, "threads")))
def test_worker_runs_steps_and_stops_cleanly(cli: Cli, number: int, pool: str) -> None:
    worker = cli.start("worker", "-w", "flows.py", "--pool", pool, "-p", "2", "-c", "2", log="worker.log")
    cli.wait_for("worker.log", READY, 2)

    done = cli("run", "greet", '{"name": "ada"}', "--wait", "--timeout", "30", "--json").json
    assert (done["status"], done["result"]) == ("completed", {"text": "hello ada"})
    cli("wait", done["run_id"]).prints("""
        completed <id>
        {
          "text": "hello ada"
        }
        """)
    cli("wait", done["run_id"], "--json").prints_json(
        {
            "run_id": "<id>",
            "workflow": "greet",
            "status": "completed",
            "result": {"text": "hello ada"},
            "results": {"greet": {"text": "hello ada"}},
            "error": None,
            "failed_step": None,
        }
    )
    failed = cli("run", "broken", "--wait", "--timeout", "30", "--json", code=1).json
    assert (failed["status"], failed["failed_step"], failed["error"]["type"]) == ("failed", "fails", "ValueError")
    cli("wait", failed["run_id"], code=1).prints("""
        failed <id>
        at step fails: ValueError: never (not retried: that takes StepError(behavior='retry'), max_retries or retry_on)
        """)
    skip = ("skip", failed["run_id"], "fails", "--reason", "test", "--json")
    cli(*skip).prints_json({"run_id": "<id>", "step": "fails", "status": "skipped"})
    assert cli("doctor", "--json").json["healthy"] is True

    everybody = family(worker.pid)
    assert len(everybody) >= 3
    assert stop(worker, number) == 0
    assert gone(everybody), cli.log("worker.log")


@pytest.mark.slow
def test_show_prints_all_about_a_run(cli: Cli) -> None:
    cli.start("worker", "-w", "flows.py", "-p", "1", log="worker.log")
    cli.wait_for("worker.log", READY)
    cli("run", "greet", '{"name": "ada"}', "--run-id", "good", "--wait", "--timeout", "30")
    cli("run", "broken", "--run-id", "bad", "--wait", "--timeout", "30", code=1)

    good = cli("show", "good", "--logs", "--history", "--json").json
    [step] = good["steps"]
    assert (step["path"], step["status"], step["attempts"], step["description"]) == (
        "greet",
        "completed",
        1,
        "greeted ada",
    )
    assert step["duration"] >= 0
    assert [line["message"] for line in good["logs"]] == ["greeting"]
    bad = cli("show", "bad", "--json").json
    assert [(attempt["attempt"], attempt["outcome"]) for attempt in bad["attempts"]] == [(1, "failed"), (2, "failed")]
    # The attempts, the traceback of each, and their log lines.
    said = cli("show", "bad", "--history", "--logs").out
    errors = ["rival_workers.errors.StepError: not yet", "ValueError: never"]
    assert [line.strip() for line in said.splitlines() if line.strip() in errors] == errors


@pytest.mark.slow
def test_a_worker_process_that_dies_is_replaced(cli: Cli) -> None:
    worker = cli.start("worker", "-w", "flows.py", "-p", "1", log="worker.log")
    cli.wait_for("worker.log", READY)
    [child] = psutil.Process(worker.pid).children()
    child.kill()
    cli.wait_for("worker.log", READY, 2)
    assert cli("run", "greet", '{"name": "ada"}', "--wait", "--timeout", "30", "--json").json["status"] == "completed"


@pytest.mark.slow
def test_a_worker_that_is_killed_outright_takes_its_processes_with_it(cli: Cli) -> None:
    worker = cli.start("worker", "-w", "flows.py", "-p", "2", log="worker.log")
    cli.wait_for("worker.log", READY, 2)
    everybody = family(worker.pid)
    worker.kill()
    wait_until(lambda: gone(everybody), 30, "its processes end")


@pytest.mark.slow
def test_dev_is_found_by_other_commands_is_shared_and_leaves_nothing_behind(bare: Cli) -> None:
    first = bare.start("dev", "--workflows", "flows.py", "-p", "1", log="dev.log")
    bare.wait_for("dev.log", READY)
    assert len(lines_like(bare.log("dev.log"), "  export RIVAL_DATABASE_URL='postgresql://…'")) == 1
    run = ("run", "greet", '{"name": "ada"}', "--run-id", "kept", "--wait", "--timeout", "30", "--json")
    assert bare(*run).json["status"] == "completed"
    assert bare("doctor", "--json").json["healthy"] is True

    second = bare.start("dev", "--workflows", "flows.py", "-p", "1", log="second.log")
    bare.wait_for("second.log", READY)
    shared = "Shared: another `rival dev` runs in this folder; this one uses its servers and adds workers."
    assert lines_like(bare.log("second.log"), shared) == [shared]
    assert stop(first) == 0
    assert bare("ls", "--json").json["runs"][0]["run_id"] == "kept"
    assert stop(second, signal.SIGTERM) == 0

    assert processes_in(bare.directory) == []
    bare("ls", code=1).complains(
        "rival: No database is given. Set RIVAL_DATABASE_URL (postgresql://…), or pass database_url=…; "
        "`rival dev` brings its own and prints both URLs."
    )


@pytest.mark.slow
def test_data_survives_a_restart_of_dev_and_a_kill_leaves_nothing(bare: Cli) -> None:
    first = bare.start("dev", "--workflows", "flows.py", "-p", "1", log="dev.log")
    bare.wait_for("dev.log", READY)
    bare("run", "greet", '{"name": "ada"}', "--run-id", "kept", "--wait", "--timeout", "30")
    first.kill()
    first.wait()
    wait_until(lambda: processes_in(bare.directory) == [], 40, "all of it ends")

    second = bare.start("dev", "--json", log="second.log")
    bare.wait_for("second.log", '{"database_url": …}')
    assert bare("show", "kept", "--json").json["result"] == {"text": "hello ada"}
    announced = json.loads(bare.log("second.log").splitlines()[0])
    assert set(announced) == {"database_url", "broker_url", "servers", "shared", "processes", "workflows", "dashboard"}
    assert (announced["shared"], announced["workflows"]) == (False, [])
    assert stop(second) == 0
    assert processes_in(bare.directory) == []


@pytest.mark.slow
@pytest.mark.parametrize("number", long_but_first(signal.SIGTERM, signal.SIGINT))
@pytest.mark.parametrize("options", [("-w", "flows.py", "-p", "1"), ()], ids=["with workers", "servers alone"])
def test_dev_in_the_background_stops_by_a_signal(bare: Cli, number: int, options: tuple[str, ...]) -> None:
    """A shell without job control starts background jobs with SIGINT ignored."""
    command = f"trap '' INT; exec {sys.executable} -m rival_workers.cli dev {' '.join(options)}"
    with (bare.directory / "dev.log").open("wb") as log:
        dev = subprocess.Popen(["sh", "-c", command], cwd=bare.directory, env=bare.env, stdout=log, stderr=log)
    bare.wait_for("dev.log", READY if options else "Rival is up: …")
    everybody = family(dev.pid)
    dev.send_signal(number)
    assert dev.wait(40) == 0, bare.log("dev.log")
    assert gone(everybody), bare.log("dev.log")
    assert processes_in(bare.directory) == []


def test_flower_on_a_taken_port_says_so(cli: Cli) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        answer = cli("flower", "--port", str(port), code=1)
    answer.complains(
        "rival: Flower cannot listen at 127.0.0.1:<port> (Address already in use). Another Flower may be running there "
        "already; choose another port with --port."
    )


@pytest.mark.slow
def test_flower_starts_beside_dev_and_sees_its_workers(bare: Cli) -> None:
    pytest.importorskip("flower")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    dev = bare.start("dev", "--workflows", "flows.py", "-p", "1", log="dev.log")
    bare.wait_for("dev.log", READY)
    flower = bare.start("flower", "--port", str(port), log="flower.log", FLOWER_UNAUTHENTICATED_API="true")

    def sees_the_attempt() -> bool:
        bare("run", "greet", '{"name": "ada"}', "--wait", "--timeout", "30")
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/tasks", timeout=5) as answer:
                return b'"greet.greet"' in answer.read()
        except OSError:
            return False

    wait_until(sees_the_attempt, 60, "flower shows the step under its own name")
    password = bare.log("dev.log").partition("redis://:")[2].partition("@")[0]
    assert password
    assert all(password not in " ".join(process.cmdline()) for process in family(flower.pid))
    assert stop(flower, signal.SIGTERM) is not None
    assert stop(dev) == 0
