"""An attempt that is over: its coroutine is cancelled, and a worker that stops does not wait for its function."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from rival_client.db.fleet_tables import executors
from rival_workers import create_workflow, embedded, flow
from rival_workers.definition.registry import Registry
from rival_workers.library import EmbeddedRival
from rival_workers.runtime.attempt import async_loop
from rival_workers.runtime.attempt.async_loop import async_steps
from tests.support.workers import wait_until


class Steps:
    """Async steps that do not end by themselves."""

    def __init__(self) -> None:
        self.began, self.cancelled, self.release = threading.Event(), threading.Event(), threading.Event()

    async def wait(self) -> None:
        self.began.set()
        try:
            while True:
                await asyncio.sleep(0.01)
        except asyncio.CancelledError:
            self.cancelled.set()
            raise

    async def ignore(self) -> str:
        self.began.set()
        while not self.release.is_set():
            try:
                await asyncio.sleep(0.01)
            except asyncio.CancelledError:
                self.cancelled.set()
        return "too late"

    def block(self) -> None:
        self.began.set()
        assert self.release.wait(60)


@pytest.fixture
def steps() -> Iterator[Steps]:
    made = Steps()
    yield made
    made.release.set()


@pytest.fixture
def rival(own_registry: Registry) -> Iterator[EmbeddedRival]:
    with embedded(registry=own_registry, concurrency=1, lease=2, shutdown_grace=30) as opened:
        yield opened


@pytest.fixture
def own_registry() -> Registry:
    return Registry()


def define(rival: EmbeddedRival, function: Callable[..., Any], **options: Any) -> None:
    registry = rival._registry
    create_workflow("slow").step(function, name="s", **options).register(registry)
    create_workflow("quick").step(lambda: 1, name="q").register(registry)


def history(rival: EmbeddedRival, run_id: str) -> list[str]:
    return [one.what for one in rival.history(run_id)]


def test_a_step_that_has_timed_out_is_cancelled_and_gives_its_slot_back(rival: EmbeddedRival, steps: Steps) -> None:
    define(rival, steps.wait, timeout=0.2)
    ended = rival.run("slow").wait(timeout=30)
    assert (ended.error or {})["type"] == "StepTimeout"
    assert rival.run("quick").get(timeout=30) == 1
    assert steps.cancelled.is_set()
    assert "late_result_refused" not in history(rival, ended.run_id)


def test_a_step_whose_run_is_cancelled_is_cancelled(rival: EmbeddedRival, steps: Steps) -> None:
    define(rival, steps.wait)
    started = rival.run("slow")
    assert steps.began.wait(30)
    rival.cancel(started.run_id)
    assert steps.cancelled.wait(30)
    assert rival.run("quick").get(timeout=30) == 1
    assert rival.state(started.run_id).status == "cancelled"


@pytest.mark.parametrize("is_async", [False, True], ids=["flow", "async flow"])
def test_a_step_of_a_flow_is_cancelled_with_its_run(rival: EmbeddedRival, steps: Steps, is_async: bool) -> None:
    after: list[str] = []

    @flow("f", registry=rival._registry)
    def sync_flow(ctx: Any, input: Any) -> None:
        try:
            ctx.step(steps.wait)
        except Exception:
            after.append("caught")
        after.append("went on")

    @flow("af", registry=rival._registry)
    async def async_flow(ctx: Any, input: Any) -> None:
        try:
            await asyncio.gather(ctx.step(steps.wait), ctx.step(steps.wait, name="another"))
        except Exception:
            after.append("caught")
        after.append("went on")

    define(rival, steps.block)
    started = rival.run("af" if is_async else "f")
    assert steps.began.wait(30)
    rival.cancel(started.run_id)
    assert steps.cancelled.wait(30)
    assert rival.run("quick").get(timeout=30) == 1
    assert after == []


def test_a_step_of_a_flow_that_has_timed_out_is_cancelled(rival: EmbeddedRival, steps: Steps) -> None:
    @flow("f", registry=rival._registry)
    def sync_flow(ctx: Any, input: Any) -> str:
        try:
            ctx.step(steps.wait, options={"timeout": 0.2})
        except Exception as error:
            return type(error).__name__
        return "completed"

    assert rival.run("f").get(timeout=30) == "StepFailed"
    assert steps.cancelled.wait(30)


def test_a_coroutine_that_ignores_its_cancellation_gives_its_slot_back_and_is_reported(
    rival: EmbeddedRival, steps: Steps, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(async_loop, "CLEANUP", 0.2)
    define(rival, steps.ignore, timeout=0.2)
    ended = rival.run("slow").wait(timeout=30)
    assert rival.run("quick").get(timeout=30) == 1
    assert [(one.path, one.run_id) for one in async_steps.left_behind] == [("s", ended.run_id)]
    steps.release.set()
    wait_until(lambda: not async_steps.left_behind)
    assert rival.state(ended.run_id).status == "failed"


def test_a_function_in_a_thread_is_reported_to_the_runs_that_wait_for_its_slot(
    rival: EmbeddedRival, steps: Steps
) -> None:
    define(rival, steps.block, timeout=0.2)
    ended = rival.run("slow").wait(timeout=30)
    waits = rival.run("quick").run_id
    found = f"attempts are over, but their functions still run: step 's' of run {ended.run_id!r} (since "
    wait_until(lambda: any(one.problem for one in rival.executors()), 30, "a report")
    [executor] = rival.executors()
    assert (executor.problem or "").startswith(found)
    [reason] = rival.why(waits).reasons
    assert reason.evidence[-1] == f"embedded: {executor.problem}"
    with rival.database.autocommit() as connection:
        assert connection.execute(executors.select()).one().busy == 1


def test_a_stop_does_not_wait_for_attempts_that_are_over(steps: Steps, own_registry: Registry) -> None:
    with embedded(registry=own_registry, concurrency=2, shutdown_grace=60) as rival:
        define(rival, steps.block, timeout=0.2)
        rival.run("slow").wait(timeout=30)
        began = time.monotonic()
    assert time.monotonic() - began < 30


def test_a_stop_does_not_wait_for_attempts_of_a_run_that_was_cancelled(steps: Steps, own_registry: Registry) -> None:
    with embedded(registry=own_registry, concurrency=2, shutdown_grace=60) as rival:
        define(rival, steps.block)
        started = rival.run("slow")
        assert steps.began.wait(30)
        rival.cancel(started.run_id)
        began = time.monotonic()
    assert time.monotonic() - began < 30
