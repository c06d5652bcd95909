"""A Rival and its worker in one process, on SQLite."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rival_client import InvalidArgument, UnknownWorkflow
from rival_workers import EmbeddedRival, StepError, create_workflow, embedded
from rival_workers.definition.registry import Registry
from tests.support.output import is_printed


def first() -> dict[str, int]:
    return {"n": 1}


def second(steps, run):  # type: ignore[no-untyped-def]
    if run.attempt == 1:
        raise StepError("once", behavior="retry")
    return {"n": steps.first.result["n"] + 1}


def slow(input):  # type: ignore[no-untyped-def]
    time.sleep(input["seconds"])
    return "slept"


@pytest.fixture
def registry() -> Registry:
    known = Registry()
    create_workflow("adding").step(first).step(second, max_attempts=2, base_delay=0.01).register(known)
    create_workflow("quick").step(first).register(known)
    create_workflow("slow").step(slow, timeout=0.2).register(known)
    return known


@pytest.fixture(params=["threads", "solo"])
def rival(registry: Registry, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[EmbeddedRival]:
    with embedded(tmp_path / "app.db", registry=registry, pool=request.param) as opened:
        yield opened


def test_a_run_is_carried_out_in_this_process(rival: EmbeddedRival) -> None:
    started = rival.run("adding")
    result = rival.wait("adding", started.run_id, timeout=10)
    assert (result.status, result.result) == ("completed", {"n": 2})


def test_wait_returns_without_polling_for_it(rival: EmbeddedRival) -> None:
    until_it_polls = 10
    for _ in range(20):
        before = time.monotonic()
        run_id = rival.run("quick").run_id
        rival.wait("quick", run_id, timeout=30, poll_interval=until_it_polls)
        assert time.monotonic() - before < until_it_polls


def test_a_timeout_is_applied_while_the_step_still_runs(rival: EmbeddedRival) -> None:
    run_id = rival.run("slow", {"seconds": 0.6}).run_id
    result = rival.wait("slow", run_id, timeout=10)
    assert result.status == "failed"
    assert result.error is not None
    assert result.error["type"] == "StepTimeout"


def test_what_was_started_before_a_restart_goes_on_after_it(registry: Registry, tmp_path: Path) -> None:
    slow_registry = Registry()
    create_workflow("adding").step(first).step(second, max_attempts=2, base_delay=0.5).register(slow_registry)
    with embedded(tmp_path / "app.db", registry=slow_registry, ring_grace=0.2) as rival:
        run_id = rival.run("adding").run_id
    with embedded(tmp_path / "app.db", registry=slow_registry, ring_grace=0.2) as rival:
        assert rival.wait("adding", run_id, timeout=15).result == {"n": 2}


def test_a_workflow_defined_after_the_start_can_be_run(tmp_path: Path) -> None:
    registry = Registry()
    with embedded(registry=registry) as rival:
        with pytest.raises(UnknownWorkflow):
            rival.run("late")
        create_workflow("late").step(first).register(registry)
        assert rival.wait("late", rival.run("late").run_id, timeout=10).result == {"n": 1}


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"pool": "x"}, "pool: 'x' is not a pool: give one of threads, solo."),
        ({"concurrency": 0}, "concurrency: 0 is not a whole number from 1 to 2,147,483,647."),
        ({"leese": 5}, "leese: unknown setting (did you mean 'lease'?); known are database_url, …"),
        (
            {"database_url": "sqlite://"},
            "database_url: embedded() has its own broker and database: give the path …",
        ),
    ],
)
def test_invalid_arguments_are_named(given: dict[str, Any], problem: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        embedded(**given)
    assert is_printed([f"Invalid argument {problem}"], [str(caught.value)])
