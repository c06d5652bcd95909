"""The clock that a flow sees in a lab is the lab's."""

from __future__ import annotations

import asyncio
import datetime as dt
from typing import Any

import pytest

from rival_workers import create_workflow, flow
from rival_workers.testing import Lab

#: The lab's clock goes on by microseconds whenever something happens.
MOMENTS = dt.timedelta(milliseconds=1)
START = dt.datetime(2030, 1, 1, tzinfo=dt.UTC)


@flow("sleeper", register=False)
def sleeper(ctx: Any, input: float) -> Any:
    before = ctx.now()
    ctx.sleep(input)
    return [before.isoformat(), (ctx.now() - before).total_seconds()]


@flow("async-sleeper", register=False)
async def async_sleeper(ctx: Any, input: float) -> Any:
    loop = asyncio.get_running_loop()
    before, began = await ctx.now(), loop.time()
    await ctx.sleep(input)
    after = await ctx.now()
    return [before.isoformat(), (after - before).total_seconds(), loop.time() - began]


@flow("left", register=False)
def left(ctx: Any, input: Any) -> Any:
    ctx.sleep(50)
    return (ctx.run.deadline_at - ctx.now()).total_seconds()


@flow("until", register=False)
def until(ctx: Any, input: str) -> Any:
    ctx.sleep_until(dt.datetime.fromisoformat(input))
    return ctx.now().isoformat()


def test_now_is_the_time_of_the_lab() -> None:
    with Lab(start=START) as lab:
        lab.register([sleeper], name="w")
        began, slept = lab.run("w", 365 * 86400.0).result
    assert START <= dt.datetime.fromisoformat(began) < START + MOMENTS
    assert 0 <= slept - 365 * 86400 < MOMENTS.total_seconds()


def test_now_of_an_async_flow_and_the_time_of_its_loop_agree() -> None:
    with Lab(start=START) as lab:
        lab.register([async_sleeper], name="w")
        began, slept, by_the_loop = lab.run("w", 86400.0).result
    assert START <= dt.datetime.fromisoformat(began) < START + MOMENTS
    assert all(0 <= one - 86400 < MOMENTS.total_seconds() for one in (slept, by_the_loop))


@pytest.mark.parametrize("start", [None, START])
def test_a_flow_can_compare_its_deadline_with_now(start: dt.datetime | None) -> None:
    with Lab(start=start) as lab:
        lab.register(create_workflow("w").step(left))
        assert 0 <= 10 - lab.run("w", deadline=60).result < MOMENTS.total_seconds()


def test_a_sleep_until_a_time_goes_by_the_clock_of_the_lab() -> None:
    when = START + dt.timedelta(days=3)
    with Lab(start=START) as lab:
        lab.register([until], name="w")
        run = lab.run("w", when.isoformat())
        assert when <= dt.datetime.fromisoformat(run.result) < when + MOMENTS
