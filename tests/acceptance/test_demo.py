"""The demo is a promise: it shows what Rival is for, and it ends."""

from __future__ import annotations

import json

import pytest

from rival_workers.cli.demo import WORKFLOWS
from rival_workers.cli.demo_cast import CAST
from rival_workers.definition.files import register_paths
from rival_workers.definition.registry import Registry
from tests.acceptance.conftest import Cli, processes_in


def test_the_examples_are_the_workflows_of_the_demo() -> None:
    defined = register_paths([WORKFLOWS], Registry())
    assert {workflow.name for workflow in defined} == {role.workflow for role in CAST}
    inputs = {workflow.name: workflow.read_input for workflow in defined}
    for role in CAST:
        inputs[role.workflow](role.input)


@pytest.mark.slow
def test_the_demo_ends_as_it_must_and_leaves_nothing_running(bare: Cli) -> None:
    demo = bare.start("demo", log="demo.log")
    assert demo.wait(100) == 0, bare.log("demo.log")
    said = bare.log("demo.log")
    for shown in ("SIGKILL to worker process", "(worker lost)", "cancelled quote", "waiting_retry", "skipped"):
        assert shown in said
    assert processes_in(bare.directory) == []


@pytest.mark.slow
def test_the_demo_tells_programs_how_each_run_ended(bare: Cli) -> None:
    answer = bare("demo", "--json")
    found = json.loads(answer.out)
    assert found["ok"] is True
    assert {run["name"]: run["status"] for run in found["runs"]} == {
        "order": "completed", "order-2": "completed", "report": "completed", "video": "completed",
        "renewal": "failed", "quote": "cancelled",
    }  # fmt: skip


@pytest.mark.slow
def test_a_demo_that_is_interrupted_leaves_nothing_running(bare: Cli) -> None:
    demo = bare.start("demo", log="demo.log")
    bare.wait_for("demo.log", "video.encode")
    demo.send_signal(2)
    assert demo.wait(60) == 130
    assert processes_in(bare.directory) == []
