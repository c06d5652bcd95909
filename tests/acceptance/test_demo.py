"""The demo is a promise: it shows what Rival is for, and it ends."""

from __future__ import annotations

import datetime as dt
import json
import re
import signal
import urllib.error
import urllib.request

import pytest

from rival_client.model.records import RunState
from rival_workers.cli.demo import command
from rival_workers.cli.demo.expected_runs import DEMO_RUNS
from rival_workers.definition.files import register_paths
from rival_workers.definition.registry import Registry
from tests.acceptance.conftest import Cli, processes_in

LINK = re.compile(r"^Dashboard: (http://127\.0\.0\.1:\d+/)#token=(\S+)$", re.MULTILINE)


def test_the_examples_are_the_workflows_of_the_demo() -> None:
    defined = register_paths([command.WORKFLOWS], Registry())
    assert {workflow.name for workflow in defined} == {role.workflow for role in DEMO_RUNS}
    inputs = {workflow.name: workflow.read_input for workflow in defined}
    for role in DEMO_RUNS:
        inputs[role.workflow](role.input)


@pytest.mark.slow
def test_the_demo_ends_as_it_must_and_leaves_nothing_running(bare: Cli) -> None:
    answer = bare("demo", "--json")
    runs = answer.json["runs"]
    assert answer.json == {"ok": True, "runs": runs, "problems": [], "dashboard": None}
    assert {run["name"]: run["status"] for run in runs} == {
        "order": "completed",
        "order-2": "completed",
        "report": "completed",
        "video": "completed",
        "renewal": "failed",
        "quote": "cancelled",
    }
    _assert_shown(answer.err)
    assert processes_in(bare.directory) == []


def _assert_shown(text: str) -> None:
    """All that the demo has written beside its summary: a line for each change that it has seen."""
    starting, link, empty, *changes, hint = text.splitlines()
    assert starting == "starting Postgres, Redis and 2 worker processes …"
    assert LINK.fullmatch(link)
    assert empty == ""
    assert hint == "`rival demo --keep` keeps the dashboard and the workers until Ctrl-C."
    parts = [CHANGE.fullmatch(line) for line in changes]
    assert None not in parts, changes
    reported = {re.sub(r"\d+", "<pid>", one["event"]) for one in parts if one and one["event"]}
    assert reported == EVENTS
    last = {one["what"]: one["status"] for one in parts if one and one["what"]}
    # The worker that is killed may have had other steps, on a slow machine.
    assert {what: last[what].removesuffix(LOST) for what in last} == ENDS
    assert last["video.encode"] == "completed" + LOST


LOST = " (worker lost)"
CHANGE = re.compile(
    r" *\d+\.\d s  (?:→ (?P<event>.+)|"
    r"(?P<what>\S+) +(?P<status>[a-z_]+(?: \(attempt \d+\))?(?: \(worker lost\))?))"
)
EVENTS = {
    "SIGKILL to worker process <pid>, in the middle of video.encode",
    "cancelled quote, which was waiting for its next attempt",
}
#: The last line about each run and each step.
ENDS = {
    "order": "completed",
    "order.validate": "completed",
    "order.charge": "completed (attempt 3)",
    "order.ship": "completed",
    "order.notify": "completed",
    "order-2": "completed",
    "order-2.validate": "completed",
    "order-2.charge": "completed (attempt 3)",
    "order-2.ship": "completed",
    "order-2.notify": "skipped",
    "report": "completed",
    "report.collect": "completed",
    "report.render": "completed (attempt 2)",
    "report.publish": "completed",
    "video": "completed",
    "video.fetch": "completed",
    "video.encode": "completed",
    "video.publish": "completed",
    "renewal": "failed",
    "renewal.reserve_licence": "completed",
    "renewal.charge_card": "failed",
    "renewal.charge_card!on_error": "completed",
    "renewal.!on_error": "completed",
    "quote": "cancelled",
    "quote.request_quote": "completed",
    "quote.await_answer": "cancelled",
}


def test_the_demo_fails_when_a_run_ends_otherwise(capsys: pytest.CaptureFixture[str]) -> None:
    now = dt.datetime.now(dt.UTC)
    states = {
        role.name: RunState(
            role.name, role.workflow, "1", "completed", role.input, None, None, None, None, now, now, now
        )
        for role in DEMO_RUNS
    }
    assert command.print_summary(states, as_json=False) == 1
    said = [line for line in capsys.readouterr().out.splitlines() if "not as expected" in line]
    assert said == [f"{role.name} ended completed, not as expected: " for role in DEMO_RUNS]


@pytest.mark.slow
def test_a_demo_that_is_interrupted_leaves_nothing_running(bare: Cli) -> None:
    running = bare.start("demo", log="demo.log")
    bare.wait_for("demo.log", "…  video.encode  …running")
    running.send_signal(signal.SIGINT)
    assert running.wait(60) == 130
    assert processes_in(bare.directory) == []


@pytest.mark.long
@pytest.mark.slow
def test_a_kept_demo_serves_its_dashboard_and_runs_workflows_until_it_is_stopped(bare: Cli) -> None:
    running = bare.start("demo", "--keep", "--json", log="demo.log")
    bare.wait_for("demo.log", "Dashboard and workers stay until Ctrl-C: start a workflow from its form.")
    found = LINK.search(bare.log("demo.log"))
    assert found is not None
    summary = json.JSONDecoder().raw_decode(bare.log("demo.log"), bare.log("demo.log").index("{\n"))[0]
    assert (summary["ok"], summary["dashboard"]) == (True, "".join((found[1], "#token=", found[2])))
    with urllib.request.urlopen(f"{found[1]}healthz", timeout=10) as answer:
        assert answer.read() == b"ok"
    with pytest.raises(urllib.error.HTTPError, match="401"):
        urllib.request.urlopen(f"{found[1]}api/v1/runs", timeout=10)
    running.send_signal(signal.SIGTERM)
    assert running.wait(60) == 0
    assert processes_in(bare.directory) == []


@pytest.mark.long
@pytest.mark.slow
def test_without_the_dashboard_no_link_is_printed(bare: Cli) -> None:
    answer = bare("demo", "--no-dashboard")
    answer.stderr_is("starting Postgres, Redis and 2 worker processes …")
    answer.stdout_is(
        """
        …

        run  status  took  as expected  what it shows
        order  completed  <duration>  yes  the charge fails twice and is retried
        order-2  completed  <duration>  yes  the last step skips itself
        report  completed  <duration>  yes  the renderer hangs: timeout, then a retry
        video  completed  <duration>  yes  its worker is killed with SIGKILL: takeover
        renewal  failed  <duration>  yes  the card is declined: on_error handlers, then failed
        quote  cancelled  <duration>  yes  waits for an answer until it is cancelled

        every run ended as expected; nothing is left running
        """
    )
