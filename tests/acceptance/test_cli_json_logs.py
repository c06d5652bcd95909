"""`rival worker --json` and `rival dev --json`: every line that they print is a JSON object."""

from __future__ import annotations

import json
import signal
from typing import Any

import pytest

from tests.acceptance.conftest import Cli, stop
from tests.support.output import as_expected, normalised_json
from tests.support.workers import READY

ANY = {"time": "<time>", "level": "info"}
#: What a fleet of one process logs for the runs below, each line whole.
LINES = [
    {**ANY, "logger": "rival.worker", "message": "worker rival-… is ready (threads, 16 at a time): …"},
    {
        **ANY,
        "logger": "rival.steps",
        "message": "greeting",
        "run": "good",
        "workflow": "greet",
        "step": "greet",
        "attempt": 1,
        "fields": {"name": "ada"},
    },
    {**ANY, "logger": "rival.worker", "message": "worker: Warm shutdown (MainProcess)"},
]


def logged(cli: Cli, name: str) -> list[dict[str, Any]]:
    """Every line must be an object; a line of text fails here."""
    return [normalised_json(json.loads(line), cli.directory) for line in cli.log(name).splitlines()]


def assert_logged(lines: list[dict[str, Any]], expected: list[dict[str, Any]]) -> None:
    assert as_expected(expected, lines) == expected


def test_json_and_a_log_for_people_exclude_each_other(cli: Cli) -> None:
    for command in ("worker", "dev"):
        said = cli(command, "-w", "flows.py", "--json", "--log-format", "console", code=2).error["message"]
        assert said == (f"with --json the log is JSON, too: leave --log-format out (see `rival {command} --help`)")


@pytest.mark.slow
def test_with_json_every_line_of_a_worker_is_an_object(cli: Cli) -> None:
    worker = cli.start("worker", "-w", "flows.py", "-p", "1", "--json", log="worker.log")
    cli.wait_for("worker.log", READY)
    cli("run", "greet", '{"name": "ada"}', "--run-id", "good", "--wait", "--timeout", "30")
    assert stop(worker, signal.SIGTERM) == 0
    announced, *lines = logged(cli, "worker.log")
    names = ["broken", "greet", "nap", "patient"]
    assert announced == {"processes": 1, "pool": "threads", "queues": ["<queue>"], "workflows": names}
    size = {**ANY, "logger": "rival.worker", "message": "1 processes of 16 (threads) on …: broken, greet, nap, patient"}
    rules = {**ANY, "logger": "rival.rules", "message": "following version 0 of the fleet's rules (0 rules)"}
    assert_logged(lines, [size, rules, *LINES])


@pytest.mark.slow
def test_with_json_every_line_of_dev_is_an_object(bare: Cli) -> None:
    dev = bare.start("dev", "-w", "flows.py", "-p", "1", "--json", "--no-dashboard", log="dev.log")
    bare.wait_for("dev.log", READY)
    bare("run", "greet", '{"name": "ada"}', "--run-id", "good", "--wait", "--timeout", "30")
    assert stop(dev) == 0
    announced, *lines = logged(bare, "dev.log")
    assert announced == {
        "database_url": announced["database_url"],
        "broker_url": announced["broker_url"],
        "shared": False,
        "processes": 1,
        "workflows": ["broken", "greet", "nap", "patient"],
        "dashboard": None,
        "servers": ["Database: its own, in .rival/", "Broker: its own, in .rival/"],
    }
    rules = {**ANY, "logger": "rival.rules", "message": "following version 0 of the fleet's rules (0 rules)"}
    assert_logged(lines, [rules, *LINES])


@pytest.mark.slow
def test_with_json_a_failure_is_one_object_with_its_traceback(cli: Cli) -> None:
    cli.start("worker", "-w", "flows.py", "-p", "1", "--json", log="worker.log")
    cli.wait_for("worker.log", READY)
    cli("run", "broken", "--run-id", "bad", "--wait", "--timeout", "30", code=1)
    cli.wait_for("worker.log", '…"message": "failed at step fails: ValueError: never (flows.py:18 in fails)"…')
    failed = [line for line in logged(cli, "worker.log") if line.get("level") == "error"]
    assert_logged(
        failed,
        [
            {
                "time": "<time>",
                "level": "error",
                "logger": "rival.steps",
                "message": "attempt 2 of 3 failed, not retried: …: ValueError: never (flows.py:18 in fails)",
                "run": "bad",
                "workflow": "broken",
                "step": "fails",
                "attempt": 2,
                "error": {"type": "ValueError", "message": "never"},
                "fields": ...,
            },
            {
                "time": "<time>",
                "level": "error",
                "logger": "rival.runs",
                "message": "failed at step fails: ValueError: never (flows.py:18 in fails)",
                "run": "bad",
                "workflow": "broken",
                "step": "fails",
                "error": {"type": "ValueError", "message": "never", "location": "flows.py:18 in fails"},
            },
        ],
    )
    assert failed[0]["fields"]["traceback"].splitlines()[0] == "Traceback (most recent call last):"
