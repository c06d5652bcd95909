"""Every promise of the flows' seed (checkpoints, timers, events, rewind, command line), or where it is shown.

| promise | where |
| --- | --- |
| one contract for every store | tests/contract/, on SQLite and Postgres |
| a step is executed once even after a crash | tests/chaos/test_flows.py, and test_seed_002: test_what_came_due_while_everything_was_down_goes_on_when_a_worker_is_back |
| a timer resumes after its delay, with tolerance | tests/integration/test_sleeping.py |
| an event resumes when it is emitted | here, with the command |
| terminal and retryable failures | here |
| start, ls, show, cancel, rewind, emit | here; misuse in tests/acceptance/test_cli.py, rewind's preview in test_cli_operating.py |
| ended runs expire | tests/contract/test_retention.py, tests/contract/test_children.py |
"""  # noqa: E501 - a table

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rival_workers import StepError, create_workflow, embedded, flow
from rival_workers.definition.registry import Registry
from rival_workers.library import EmbeddedRival
from tests.support.output import normalised
from tests.support.workers import ROOT, wait_until
from tests.support.zygote import Zygote

Rivals = Callable[..., str]
TRIED: list[str] = []


def flaky(kind: str) -> int:
    TRIED.append(kind)
    if kind == "terminal":
        raise StepError("never", behavior="stop")
    if len(TRIED) < 3:
        raise StepError("not yet", behavior="retry")
    return len(TRIED)


@pytest.fixture
def rival(tmp_path: Path) -> Iterator[EmbeddedRival]:
    TRIED.clear()
    registry = Registry()

    @flow("tries", registry=registry)
    def tries(ctx: Any, input: str) -> int:
        done: int = ctx.step(flaky, input, max_attempts=5, base_delay=0.01)
        return done

    create_workflow("order").step(lambda: "picked", name="pick").wait_event(
        "paid", "paid", key=lambda run: run.run_id
    ).step(lambda last_step: last_step.result, name="ship").register(registry)
    with embedded(tmp_path / "runs.db", registry=registry) as opened:
        yield opened


@pytest.fixture
def command(tmp_path: Path, zygote: Zygote) -> Rivals:
    """`rival …` beside the process that carries the runs out."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(("RIVAL_", "CELERY_"))}
    env |= {"RIVAL_DATABASE_URL": f"sqlite:///{tmp_path / 'runs.db'}", "PYTHONPATH": str(ROOT), "COLUMNS": "200"}
    # Another process writes without publishing a message: the keeper finds the row after this.
    env["RIVAL_RING_GRACE"] = "0.2"

    def run(*args: str) -> str:
        code, out, err = zygote.run(args, tmp_path, env, timeout=60)
        assert code == 0, err
        return out

    return run


def lines_of(printed: str) -> list[str]:
    return [line.rstrip() for line in normalised(printed).splitlines()]


def test_a_retryable_failure_is_tried_again_and_a_terminal_one_is_not(rival: EmbeddedRival) -> None:
    again = rival.run("tries", "retryable").run_id
    assert rival.wait("tries", again, timeout=20).result == 3
    TRIED.clear()
    never = rival.wait("tries", rival.run("tries", "terminal").run_id, timeout=20)
    assert (never.status, TRIED) == ("failed", ["terminal"])
    assert never.error is not None
    assert never.error["message"] == "tries/flaky: StepError: never"


def test_the_command_line_starts_lists_shows_emits_rewinds_and_cancels(rival: EmbeddedRival, command: Rivals) -> None:
    command("run", "order", "--run-id", "one")
    wait_until(lambda: rival.state("one").status == "suspended")

    [listed] = json.loads(command("ls", "--status", "suspended", "--json"))["runs"]
    assert (listed["run_id"], listed["workflow"]) == ("one", "order")
    assert lines_of(command("show", "one")) == [
        "run  one",
        "workflow  order (version <version>)",
        "status  suspended",
        "at  paid",
        "created  <time>",
        "input  null",
        "",
        "step  status  attempts  queued  took",
        "pick  completed  1  <duration>  <duration>",
        "paid  waiting  0  for an event",
        "  paid!key  completed  1  <duration>  <duration>",
    ]

    command("emit", "paid", '{"amount": 7}', "--key", "one")
    assert rival.wait("order", "one", timeout=20).result == {"amount": 7}

    command("rewind", "one", "paid")
    wait_until(lambda: rival.state("one").status == "suspended")
    assert command("cancel", "one") == "cancelled one\n"
    assert command("cancel", "one") == "one has already ended: cancelled\n"


def test_show_prints_the_error_of_a_run_that_failed(rival: EmbeddedRival, command: Rivals) -> None:
    failed = rival.run("tries", "terminal").run_id
    rival.wait("tries", failed, timeout=20)
    stopped = "not retried: its StepError says behavior='stop'"
    assert lines_of(command("show", failed))[6:15] == [
        "failed at  tries",
        "error  StepFailed: tries/flaky: StepError: never",
        "",
        "step  status  attempts  queued  took",
        "tries  failed  1  <duration>  <duration>  StepFailed: tries/flaky: StepError: never",
        f"  tries/flaky  failed  1  <duration>  <duration>  StepError: never ({stopped})",
        "",
        "step  attempt  outcome  took  error",
        "tries  1  failed  <duration>  StepFailed: tries/flaky: StepError: never",
    ]
