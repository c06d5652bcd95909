"""The event loop of async steps outlives whatever a step does to it."""

from __future__ import annotations

import asyncio
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from rival_workers.runtime.attempt import async_loop
from rival_workers.runtime.attempt.async_loop import AsyncLoop
from tests.support.output import as_expected, whole
from tests.support.workers import wait_until


@pytest.fixture
def loop() -> AsyncLoop:
    return AsyncLoop()


async def works() -> str:
    await asyncio.sleep(0.001)
    return "done"


async def exits() -> None:
    sys.exit(3)


async def exits_in_a_task_of_its_own() -> str:
    task = asyncio.create_task(exits())
    await asyncio.sleep(0.05)
    assert task.done()
    return await works()


async def stops() -> str:
    asyncio.get_running_loop().stop()
    return await works()


async def exits_in_a_callback() -> str:
    asyncio.get_running_loop().call_soon(sys.exit)
    return await works()


@pytest.mark.parametrize("step", [exits_in_a_task_of_its_own, stops, exits_in_a_callback])
def test_a_stopped_loop_goes_on_with_all_that_it_has(loop: AsyncLoop, step: Any) -> None:
    with ThreadPoolExecutor(4) as others:
        beside = [others.submit(loop.run, asyncio.sleep(0.2, number)) for number in range(4)]
        assert loop.run(step()) == "done"
        assert [one.result(10) for one in beside] == [0, 1, 2, 3]
    assert loop.run(works()) == "done"


def test_what_ends_a_process_is_only_raised(loop: AsyncLoop) -> None:
    with pytest.raises(SystemExit):
        loop.run(exits())
    assert loop.run(works()) == "done"


def test_a_closed_loop_fails_its_steps_and_is_replaced(loop: AsyncLoop) -> None:
    async def closes() -> None:
        running = asyncio.get_running_loop()

        def close_while_stopped() -> None:
            running.run_forever = close_instead  # type: ignore[method-assign]
            running.stop()

        def close_instead() -> None:
            # The thread that serves the loop starts it again after the stop: at this moment the loop does not run.
            running.close()

        running.call_soon(close_while_stopped)
        await asyncio.sleep(60)

    with pytest.raises(async_loop.LoopClosed, match=whole("code on the event loop of async steps has closed it")):
        loop.run(closes())
    assert loop.run(works()) == "done"


def test_a_blocked_loop_is_named_and_others_use_a_spare_one(
    loop: AsyncLoop, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(async_loop, "BLOCKED_AFTER", 0.05)
    go_on = threading.Event()

    async def blocks() -> int:
        assert go_on.wait(60)
        return id(asyncio.get_running_loop())

    async def which() -> int:
        return id(asyncio.get_running_loop())

    first = loop.run(which())
    with ThreadPoolExecutor(1) as other:
        blocked = other.submit(loop.run, blocks())
        wait_until(loop.check)
        expected = f"the event loop of async steps has been blocked for … s at {__file__}:… in blocks"
        assert as_expected(expected, loop.check()) == expected
        assert loop.run(which()) != first
        go_on.set()
        assert blocked.result(10) == first
    wait_until(lambda: loop.check() is None)
    wait_until(lambda: loop.run(which()) == first)
    assert [record.message for record in caplog.records][-1] == "the event loop of async steps answers again"


def test_a_loop_that_is_merely_busy_is_not_blocked(loop: AsyncLoop) -> None:
    for _ in range(100):
        loop.run(works())
        assert loop.check() is None
