"""`rival logs`, and what `rival show`, `ls` and `workflows` print about steps, runs and workflows."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path

import pytest

from rival_client import Rival
from rival_client.model.run_entries import LogEntry
from rival_client.settings import Settings
from rival_workers.store import open_store
from tests.acceptance.conftest import Answer, Cli, assert_printed
from tests.support.workers import READY

FOLLOWED = """
import pathlib, time
from rival_workers import StepError, step

def long(input, log):
    log.info("begun")
    while not pathlib.Path(input["go"]).exists():
        time.sleep(0.01)
    log.warning("done", password="hunter2")

def flaky(run):
    if run.attempt == 1:
        raise StepError("blunt axe", behavior="retry")

steps = [long, step(flaky, max_attempts=2, base_delay=0.01)]
"""


def lines(answer: Answer) -> list[dict[str, object]]:
    return [json.loads(line) for line in answer.out.splitlines()]


@pytest.fixture
def logged(shop: Cli, rival: Rival, settings: Settings) -> Cli:
    """A run `a` that has logged, as a worker leaves it."""
    rival.run("greet", {"name": "ada"}, "a")
    at = dt.datetime(2024, 5, 1, 12, tzinfo=dt.UTC)
    store = open_store(settings.require_database())
    store.append_logs("a", [LogEntry(at, "info", "greet", 1, f"line {n}", {"n": n}) for n in range(1200)])
    store.append_logs("a", [LogEntry(at, "error", "greet!on_error", 2, "\x1b[2Jbroken [red]", {"why": {"code": 7}})])
    store.close()
    return shop


def test_logs_prints_every_entry_with_its_step_level_and_fields(logged: Cli) -> None:
    lines = [f"<time> info  greet line {n} n={n}" for n in range(1200)]
    last = '<time> error  greet!on_error (attempt 2) \ufffd[2Jbroken [red] why={"code": 7}'
    logged("logs", "a").prints("\n".join([*lines, last]))


def test_logs_as_json_is_an_object_per_line(logged: Cli) -> None:
    found = lines(logged("logs", "a", "--json"))
    assert len(found) == 1201
    first = found[0]
    assert isinstance(first.pop("id"), int)
    assert first == {
        "at": "2024-05-01T12:00:00+00:00",
        "level": "info",
        "path": "greet",
        "attempt": 1,
        "message": "line 0",
        "fields": {"n": 0},
    }
    assert len(logged("show", "a", "--logs", "--json").json["logs"]) == 1201


def test_logs_are_filtered_by_step_and_level(logged: Cli) -> None:
    assert len(lines(logged("logs", "a", "--level", "warning", "--json"))) == 1
    assert len(lines(logged("logs", "a", "--step", "greet", "--json"))) == 1201
    logged("logs", "a", "--step", "nope", code=1).complains(
        "rival: No step 'nope' of run 'a' has begun: `rival show a` lists its steps."
    )
    assert len(lines(logged("logs", "a", "--step", "greet!on_error", "--json"))) == 1


def test_logs_of_no_run_and_misuse_are_said(shop: Cli) -> None:
    shop("logs", "nix", code=1).complains("rival: Unknown run 'nix'. `rival ls` lists the runs.")
    assert shop("logs", "nix", "--follow", "--json", code=1).error["type"] == "RunNotFound"
    shop("logs", "nix", "--level", "loud", code=2).complains(
        "rival: Invalid value for '--level': 'loud' is not one of 'debug', 'info', 'warning', 'error'. "
        "(see `rival logs --help`)"
    )
    shop("ls", "--active", "--status", "failed", code=2).complains(
        "rival: --status and --active exclude each other (see `rival ls --help`)"
    )


def test_ls_lists_the_active_runs(shop: Cli, rival: Rival) -> None:
    for name in ("one", "two", "three"):
        rival.run("greet", {"name": name}, name)
    rival.cancel("two")
    assert [run["run_id"] for run in shop("ls", "--active", "--json").json["runs"]] == ["three", "one"]
    shop("ls", "--active").prints(
        """
        run  workflow  status  created  took
        three  greet  pending  <time>
        one  greet  pending  <time>
        """
    )


@pytest.mark.slow
def test_logs_are_followed_until_the_run_has_ended(cli: Cli, tmp_path: Path) -> None:
    (cli.directory / "followed.py").write_text(FOLLOWED)
    cli.start("worker", "-w", "followed.py", "-p", "1", "--log-format", "json", log="worker.log")
    cli.wait_for("worker.log", READY)
    go = tmp_path / "go"
    cli("run", "followed", json.dumps({"go": str(go)}), "--run-id", "a")
    following = cli.start("logs", "a", "--follow", log="followed.log")
    cli.wait_for("followed.log", "… info …long begun")
    assert following.poll() is None
    go.touch()
    assert following.wait(30) == 0
    assert_printed(
        """
        <time> info  long begun
        <time> warning long done password=***
        <time> warning flaky attempt 1 of 2 failed, next attempt in 0.01 s: StepError: blunt axe (followed.py:13 in flaky)
          Traceback (most recent call last):
            File "<folder>/followed.py", line 13, in flaky
              raise StepError("blunt axe", behavior="retry")
          rival_workers.errors.StepError: blunt axe
        """,  # noqa: E501
        cli.log("followed.log"),
        cli.directory,
    )
    assert all(json.loads(line)["level"] for line in cli.log("worker.log").splitlines())
    _assert_metrics(cli)


def _assert_metrics(cli: Cli) -> None:
    long, flaky = cli("show", "a", "--json").json["steps"]
    assert long["duration"] > 0
    assert (long["queue_time"], long["retry_count"], long["last_error"]) == (0, 0, None)
    assert (flaky["status"], flaky["attempts"], flaky["retry_count"]) == ("completed", 2, 1)
    assert flaky["queue_time"] >= 0
    assert (flaky["last_error"]["type"], flaky["last_error"]["attempt"]) == ("StepError", 1)
    assert dt.datetime.fromisoformat(flaky["last_error"]["at"]) <= dt.datetime.fromisoformat(flaky["completed_at"])
    cli("show", "a").prints(
        """
        run  a
        workflow  followed (version <version>)
        status  completed
        created  <time>
        took  <duration>
        input  {"go": "<folder>/go"}
        result  null

        step  status  attempts  queued  took
        long  completed  1  <duration>  <duration>
        flaky  completed  2  <duration>  <duration>  (attempt 1: StepError)

        step  attempt  outcome  took  error
        flaky  1  failed  <duration>  StepError: blunt axe
        flaky  2  completed  <duration>

        flaky, attempt 1:
          Traceback (most recent call last):
            File "<folder>/followed.py", line 13, in flaky
              raise StepError("blunt axe", behavior="retry")
          rival_workers.errors.StepError: blunt axe
        """
    )
