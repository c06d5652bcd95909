"""Flows in which several things happen at once: on a fleet of every pool, in library mode and in a lab."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from typing import Any

import pytest

from rival_client import Rival
from rival_workers import embedded, flow
from rival_workers.definition.default_registry import default_registry
from rival_workers.definition.registry import Registry
from rival_workers.testing import Lab
from tests.support import flow_gallery
from tests.support.chaos import assert_nothing_is_stuck, wait_for_all
from tests.support.effort import long_but_first
from tests.support.flow_gallery import RESULTS
from tests.support.workers import Workers


def run_all(rival: Rival, times: int = 1) -> dict[str, str]:
    """Run id -> flow."""
    started = {rival.run(name).run_id: name for name in RESULTS for _ in range(times)}
    wait_for_all(rival, started, timeout=110)
    return started


def assert_right(rival: Rival, started: dict[str, str]) -> None:
    for run_id, name in started.items():
        state = rival.state(run_id)
        assert (state.status, state.result) == ("completed", RESULTS[name]), (name, state.error)
        assert [step.path for step in state.steps if step.completed_at is None] == [], name


@pytest.mark.slow
@pytest.mark.parametrize("pool", long_but_first("threads", "prefork"))
def test_flows_with_several_things_at_once_on_a_fleet(rival: Rival, workers: Workers, pool: str) -> None:
    workers.start(flow_gallery.__file__, 2, pool=pool, concurrency=2)
    assert_right(rival, run_all(rival))
    assert_nothing_is_stuck(rival)


@pytest.mark.slow
def test_flows_with_several_things_at_once_in_library_mode() -> None:
    with embedded(registry=default_registry) as rival:
        assert_right(rival, run_all(rival))


@pytest.mark.slow
def test_flows_with_several_things_at_once_survive_kills(rival: Rival, workers: Workers) -> None:
    """Each process has another hash seed, and so another order of its sets of strings and objects."""
    workers.start(flow_gallery.__file__, 2, pool="threads", concurrency=4, lease=2)
    started = {rival.run(name).run_id: name for name in RESULTS for _ in range(2)}
    for victim in list(workers.all):
        time.sleep(0.4)
        os.killpg(victim.process.pid, signal.SIGKILL)
        workers.start(flow_gallery.__file__, 1, pool="threads", concurrency=4, lease=2)
    wait_for_all(rival, started, timeout=110)
    assert_right(rival, started)
    assert_nothing_is_stuck(rival)


@pytest.mark.parametrize("continuation", [True, False])
def test_flows_with_several_things_at_once_in_a_lab(continuation: bool) -> None:
    with Lab(continuation=continuation) as lab:
        for name in sorted({*RESULTS, flow_gallery.CHILD}):
            lab.register(next(one for one in default_registry if one.name == name))
        for name, result in RESULTS.items():
            assert lab.run(name).result == result, name


def test_a_lane_sleeps_while_a_step_of_another_takes_an_hour_of_the_labs_time() -> None:
    with Lab() as lab:

        def long() -> str:
            lab.advance(3600)
            return "step"

        @flow("mixed", registry=Registry())
        async def mixed(ctx: Any) -> Any:
            order = []

            async def naps() -> None:
                await ctx.sleep(60)
                order.append("nap")

            async def works() -> None:
                order.append(await ctx.step(long))

            await asyncio.gather(naps(), works())
            await ctx.sleep(86_400)
            return order

        lab.register(mixed.definition)
        assert lab.run("mixed").result == ["nap", "step"]
