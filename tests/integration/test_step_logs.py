"""Logs of real workers: read while the step still runs, and kept of a process that is killed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rival_client import Rival
from tests.support.effort import long_but_first
from tests.support.workers import Workers, wait_until

WORKFLOW = """
import pathlib, time

def wait_for(path):
    while not pathlib.Path(path).exists():
        time.sleep(0.01)

def long(input, log, run):
    log.info("begun", attempt=run.attempt, password="hunter2", iban="DE1")
    wait_for(input["go"])
    log.info("done")

def after(log):
    log.info("after")

steps = [long, after]
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "logging_flow.py").write_text(WORKFLOW)
    return tmp_path / "logging_flow.py"


def said(rival: Rival, run_id: str) -> list[str]:
    return [entry.message for entry in rival.logs(run_id)]


@pytest.mark.parametrize("pool", long_but_first("threads", "prefork"))
def test_logs_of_a_running_step_are_readable_before_it_ends(
    rival: Rival, workers: Workers, file: Path, tmp_path: Path, pool: str
) -> None:
    workers.start(file, pool=pool, concurrency=2, redact="iban", log_format="json")
    run_id = rival.run("logging-flow", {"go": str(tmp_path / "go")}).run_id
    wait_until(lambda: said(rival, run_id) == ["begun"], 10)
    assert rival.state(run_id).status == "running"
    (tmp_path / "go").touch()
    assert rival.wait("logging-flow", run_id, timeout=20).status == "completed"
    entries = rival.logs(run_id)
    assert [(e.path, e.message) for e in entries] == [("long", "begun"), ("long", "done"), ("after", "after")]
    assert entries[0].fields == {"attempt": 1, "password": "***", "iban": "***"}
    _assert_json_lines(workers.all[0].log, run_id)


def _assert_json_lines(log: str, run_id: str) -> None:
    lines = [json.loads(line) for line in log.splitlines()]
    steps = [line for line in lines if line["logger"] == "rival.steps"]
    assert [(line["run"], line["workflow"], line["step"], line["message"]) for line in steps] == [
        (run_id, "logging-flow", "long", "begun"),
        (run_id, "logging-flow", "long", "done"),
        (run_id, "logging-flow", "after", "after"),
    ]
    assert "hunter2" not in log


@pytest.mark.slow
def test_logs_of_an_attempt_that_was_killed_are_kept_with_those_of_the_next(
    rival: Rival, workers: Workers, file: Path, tmp_path: Path
) -> None:
    [first] = workers.start(file)
    run_id = rival.run("logging-flow", {"go": str(tmp_path / "go")}).run_id
    wait_until(lambda: said(rival, run_id) == ["begun"], 10)
    first.kill()
    workers.start(file)
    wait_until(lambda: said(rival, run_id) == ["begun", "begun"], 30)
    (tmp_path / "go").touch()
    assert rival.wait("logging-flow", run_id, timeout=20).status == "completed"
    assert said(rival, run_id) == ["begun", "begun", "done", "after"]


FAILING = """
import asyncio
from rival_workers import StepError, create_workflow

def flaky(run):
    raise StepError(f"try {run.attempt}, token=hunter2", behavior="retry")

async def parse():
    await asyncio.sleep(0)
    return int("x")

create_workflow("flaky").step(flaky, max_attempts=2, base_delay=0.01).register()
create_workflow("parse").step(parse).register()
"""


#: From the user's file on.
TRACEBACK = """\
Traceback (most recent call last):
  File "{file}", line 10, in parse
    return int("x")
           ^^^^^^^^
ValueError: invalid literal for int() with base 10: 'x'
"""


@pytest.mark.parametrize("pool", long_but_first("threads", "prefork", "solo"))
def test_failed_attempts_and_runs_are_lines_of_the_workers_log(
    rival: Rival, workers: Workers, tmp_path: Path, pool: str
) -> None:
    file = tmp_path / "failing.py"
    file.write_text(FAILING)
    [worker] = workers.start(file, pool=pool, concurrency=2, log_format="json")
    flaky, parse = (rival.run(name).run_id for name in ("flaky", "parse"))
    assert {rival.wait(n, r, timeout=30).status for n, r in (("flaky", flaky), ("parse", parse))} == {"failed"}
    wait_until(lambda: worker.log.count('"rival.runs"') == 2, 10, "both runs logged")
    place = f"token=*** ({file}:6 in flaky)"
    assert _lines_of(worker.log, flaky) == [
        ("rival.steps", f"attempt 1 of 2 failed, next attempt in 0.01 s: StepError: try 1, {place}"),
        ("rival.steps", f"attempt 2 of 2 failed, no retry: StepError: try 2, {place}"),
        ("rival.runs", f"failed at step flaky: StepError: try 2, {place}"),
    ]
    error = f"ValueError: invalid literal for int() with base 10: 'x' ({file}:10 in parse)"
    assert _lines_of(worker.log, parse) == [
        ("rival.steps", f"attempt 1 of 1 failed, no retry: {error}"),
        ("rival.runs", f"failed at step parse: {error}"),
    ]
    [entry] = rival.logs(parse)
    assert (entry.level, entry.path, entry.attempt) == ("error", "parse", 1)
    assert entry.message == f"attempt 1 of 1 failed, no retry: {error}"
    assert entry.fields == {"location": f"{file}:10 in parse", "traceback": TRACEBACK.format(file=file)}
    assert "hunter2" not in worker.log


def _lines_of(log: str, run_id: str) -> list[tuple[str, str]]:
    lines = [json.loads(line) for line in log.splitlines()]
    return [(line["logger"], line["message"]) for line in lines if line.get("run") == run_id]
