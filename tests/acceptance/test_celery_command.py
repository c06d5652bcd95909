"""`celery -A app rival …`: the same commands, with the settings of the app's `install(app)`."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from importlib.metadata import entry_points

import pytest

from rival_workers.cli.main import SUMMARIES
from tests.acceptance.conftest import Answer, Cli
from tests.support.workers import READY, wait_for_line

PROJECT = """
import os
from celery import Celery
from rival_workers import install

app = Celery("proj", broker=os.environ["TEAM_BROKER"])
app.conf.broker_transport_options = {"global_keyprefix": "team:"}
install(app, workflows="flows.py", settings={"database_url": os.environ["TEAM_DATABASE"], "queue": "team", "lease": 2})
plain = Celery("plain", broker=os.environ["TEAM_BROKER"])
"""


class Team:
    """A project whose app knows the servers; the environment of the command does not."""

    def __init__(self, cli: Cli) -> None:
        self.folder, env = cli.directory, dict(cli.env)
        env |= {"TEAM_DATABASE": env.pop("RIVAL_DATABASE_URL"), "TEAM_BROKER": env.pop("RIVAL_BROKER_URL")}
        self.env = {name: value for name, value in env.items() if not name.startswith("RIVAL_")}
        (self.folder / "proj.py").write_text(PROJECT)

    def command(self, *args: str, app: str = "proj") -> list[str]:
        return [sys.executable, "-m", "celery", "-A", app, "rival", *args]

    def __call__(self, *args: str, app: str = "proj", code: int = 0) -> Answer:
        done = subprocess.run(
            self.command(*args, app=app), cwd=self.folder, env=self.env, capture_output=True, text=True, timeout=90
        )
        assert done.returncode == code, done
        return Answer(done.returncode, done.stdout, done.stderr, self.folder)


@pytest.fixture
def team(cli: Cli) -> Team:
    return Team(cli)


def test_celery_knows_the_command() -> None:
    [found] = entry_points(group="celery.commands", name="rival")
    assert found.value == "rival_workers.cli.celery_command:rival"


def test_its_help_is_that_of_rival_and_names_the_way_to_call_it(team: Team, cli: Cli) -> None:
    shown, own = team("--help").out, cli("--help").out
    assert shown.splitlines()[0] == "Usage: python -m celery rival [OPTIONS] COMMAND [ARGS]..."
    about = shown.index("  Durable workflows"), shown.index("Options:")
    assert " ".join(shown[slice(*about)].split()) == (
        "Durable workflows on Celery and Postgres. Commands use the database, broker, queue and key prefix that the "
        "workers of the app have. Only `dev` and `demo` bring their own servers."
    )
    assert shown[about[1] :] == own[own.index("Options:") :]
    without_install = team("--help", app="proj:plain").out
    assert without_install.splitlines()[1:] == own.splitlines()[1:]
    assert all(f"  {name} " in shown for name in SUMMARIES)
    help_of_one = team("show", "--help").out.splitlines()
    assert help_of_one[0] == "Usage: python -m celery rival show [OPTIONS] RUN"
    assert help_of_one[1:] == cli("show", "--help").out.splitlines()[1:]


def test_errors_and_exit_codes_are_those_of_rival(team: Team) -> None:
    team("show", "nothing", code=1).complains("rival: Unknown run 'nothing'. `rival ls` lists the runs.")
    assert team("show", "nothing", "--json", code=1).error["type"] == "RunNotFound"
    team("shw", code=2).complains(
        "rival: No such command 'shw' (did you mean 'show'?) (see `python -m celery rival --help`)"
    )
    team("ls").prints("no runs")
    found = {one["check"]: one["advice"] for one in team("doctor", "--json").json["checks"]}
    assert found["workers"] == "start workers: `celery -A APP worker -Q celery,team`"


def test_an_app_without_install_leaves_the_settings_to_the_environment(team: Team) -> None:
    team("ls", app="proj:plain", code=1).complains(
        "rival: No database is given. Set RIVAL_DATABASE_URL (postgresql://…), or pass database_url=…; "
        "`rival dev` brings its own and prints both URLs."
    )
    team.env["RIVAL_DATABASE_URL"] = team.env["TEAM_DATABASE"]
    team("ls", app="proj:plain").prints("no runs")


@pytest.mark.slow
def test_a_fleet_and_its_producers_use_the_settings_of_the_app(team: Team) -> None:
    """Database, broker, queue, key prefix and workflows are the app's."""
    with (team.folder / "worker.log").open("wb") as log:
        worker = subprocess.Popen(
            team.command("worker", "-p", "1"), cwd=team.folder, env=team.env, stdout=log, stderr=log
        )
    try:
        text = (team.folder / "worker.log").read_text
        wait_for_line(text, READY, timeout=60)
        done = team("run", "greet", '{"name": "ada"}', "--run-id", "g-1", "--wait", "--timeout", "30", "--json").json
        assert (done["status"], done["result"]) == ("completed", {"text": "hello ada"})
        executors = team("top", "--once", "--json").json["executors"]
        assert [one["queues"] for one in executors] == [["default"]]
        checks = {one["check"]: one["message"] for one in team("doctor", "--json").json["checks"]}
        assert checks["queue"] == "0 messages wait in queue 'team'"
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(40) == 0, text()
    finally:
        if worker.poll() is None:
            os.kill(worker.pid, signal.SIGKILL)
