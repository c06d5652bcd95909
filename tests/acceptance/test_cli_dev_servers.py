"""Which servers `rival dev` uses, what it says about them, and that other commands in its folder find them."""

from __future__ import annotations

import json
import subprocess

import pytest

from tests.acceptance.conftest import DOWN, Cli, assert_printed, stop
from tests.acceptance.test_celery_command import Team
from tests.support.workers import READY

#: Of other programs in the environment; nothing listens there.
OTHERS = {"DATABASE_URL": DOWN, "CELERY_BROKER_URL": "redis://:s3cret@127.0.0.1:1/0"}


@pytest.fixture
def team(cli: Cli) -> Team:
    return Team(cli)


@pytest.mark.slow
def test_dev_leaves_the_servers_of_other_programs_alone(bare: Cli) -> None:
    """As in the shell of a Django or Heroku project: joining its database would create tables there."""
    bare.env |= OTHERS
    dev = bare.start("dev", "--no-dashboard", "-w", "flows.py", "-p", "1", log="dev.log")
    bare.wait_for("dev.log", "Ctrl-C stops it; …")
    said = bare.log("dev.log").splitlines()
    assert said[:2] == [
        "Database: its own, in .rival/; DATABASE_URL is not used, only RIVAL_DATABASE_URL is",
        "Broker: its own, in .rival/; CELERY_BROKER_URL is not used, only RIVAL_BROKER_URL is",
    ]
    bare.wait_for("dev.log", READY)
    done = bare("run", "greet", '{"name": "ada"}', "--wait", "--timeout", "30", "--json").json
    assert done["status"] == "completed"
    assert bare("doctor", "--json").json["healthy"] is True
    [database] = [line.split("'")[1] for line in said if "export RIVAL_DATABASE_URL" in line]
    [broker] = [line.split("'")[1] for line in said if "export RIVAL_BROKER_URL" in line]
    assert stop(dev) == 0
    # In a shell that has outlived it.
    own = {"RIVAL_DATABASE_URL": database, "RIVAL_BROKER_URL": broker}
    bare("dev", code=1, **own).complains(
        "rival: RIVAL_DATABASE_URL and RIVAL_BROKER_URL: these servers are of an earlier `rival dev` in this folder, "
        "which has stopped. Without the variables `rival dev` starts them again: `unset RIVAL_DATABASE_URL "
        "RIVAL_BROKER_URL`."
    )


@pytest.mark.slow
def test_dev_says_that_variables_replace_its_servers(cli: Cli) -> None:
    dev = cli.start("dev", "--no-dashboard", log="dev.log")
    cli.wait_for("dev.log", "Ctrl-C stops it; …")
    assert_printed(
        """
        Database: postgresql://…, since RIVAL_DATABASE_URL is set
        Broker: redis://…, since RIVAL_BROKER_URL is set
        """,
        "\n".join(cli.log("dev.log").splitlines()[:2]),
        cli.directory,
    )
    assert stop(dev) == 0


@pytest.mark.slow
def test_dev_of_a_celery_app_does_not_join_the_servers_of_its_workers(team: Team) -> None:
    team.env |= {"RIVAL_DATABASE_URL": DOWN, "CELERY_BROKER_URL": team.env["TEAM_BROKER"]}
    command = team.command("dev", "--no-dashboard", "--json")
    with subprocess.Popen(command, cwd=team.folder, env=team.env, stdout=subprocess.PIPE, text=True) as dev:
        assert dev.stdout is not None
        announced = json.loads(dev.stdout.readline())
        dev.terminate()
        assert dev.wait(40) in (0, 130)  # 130: the signal came before it waited for one
    assert announced["servers"] == [
        "Database: its own, in .rival/; RIVAL_DATABASE_URL is not used: it is for the workers of the app",
        "Broker: its own, in .rival/; CELERY_BROKER_URL is not used: it is for the workers of the app",
    ]
    assert team.env["TEAM_BROKER"] != announced["broker_url"]
    assert "host=" in announced["database_url"]  # a socket of its own
