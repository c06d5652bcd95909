"""Whatever a flow or one of its steps raises is its failure, and no database error is."""

from __future__ import annotations

import asyncio
import gc
import sys
import weakref
from collections.abc import Callable
from typing import Any

import pytest

from rival_client.errors import DatabaseBusy, DatabaseError, DatabaseRefused, DatabaseUnavailable
from rival_workers import StepError, StepFailed, step
from tests.contract.test_lost_commit_replies import define_flow
from tests.contract.test_outcomes import fails, impatient
from tests.support.inline import Inline

ERRORS: list[type[BaseException]] = [KeyboardInterrupt, SystemExit, GeneratorExit, asyncio.CancelledError]


def raises(error: type[BaseException]) -> Callable[[], Any]:
    def function() -> Any:
        raise error

    return function


async def exits() -> None:
    sys.exit(3)


def run(inline: Inline) -> Any:
    inline.rival.run("f", run_id="r")
    inline.drain()
    return inline.rival.result("r")


@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("gathered", [False, True])
def test_what_a_step_of_a_flow_raises_is_its_failure(
    inline: Inline, error: type[BaseException], gathered: bool
) -> None:
    def body(ctx: Any) -> Any:
        try:
            if gathered:
                ctx.gather(raises(error), lambda: 1)
            else:
                ctx.step(raises(error), name="ends")
        except StepFailed as failed:
            return failed.error["type"]

    define_flow(inline, body)
    assert run(inline).result == error.__name__
    assert inline.process.executor.running.all == set()


@pytest.mark.parametrize("error", ERRORS)
def test_what_a_flow_raises_is_its_failure(inline: Inline, error: type[BaseException]) -> None:
    def body(ctx: Any) -> Any:
        ctx.step(lambda: 1, name="one")
        raise error

    define_flow(inline, body)
    result = run(inline)
    assert (result.status, result.error["type"]) == ("failed", error.__name__)


@pytest.mark.parametrize("where", ["body", "task", "step"])
def test_an_async_flow_that_exits_has_failed_and_the_next_one_runs(inline: Inline, where: str) -> None:
    async def body(ctx: Any, input: Any) -> Any:
        if input == "fine":
            return await ctx.step(fine)
        if where == "step":
            return await ctx.step(exits)
        return await (asyncio.create_task(exits()) if where == "task" else exits())

    async def fine() -> str:
        await asyncio.sleep(0)
        return "fine"

    define_flow(inline, body)
    assert run(inline).status == "failed"
    inline.rival.run("f", "fine", run_id="s")
    inline.drain()
    assert inline.rival.result("s").result == "fine"


@pytest.mark.parametrize(
    "error",
    [DatabaseUnavailable("read-only", "25006"), DatabaseBusy("deadlock"), DatabaseRefused("denied", "42501")],
    ids=lambda error: type(error).__name__,
)
@pytest.mark.parametrize("operation", ["read_checkpoints", "record_checkpoint", "record_checkpoints", "commit_flow"])
def test_a_database_error_is_not_a_flows_failure(inline: Inline, operation: str, error: DatabaseError) -> None:
    tries: list[int] = []

    def one() -> int:
        tries.append(1)
        if len(tries) == 1:
            raise StepError("so that checkpoints are read", behavior="retry")
        return 1

    def body(ctx: Any) -> Any:
        try:
            done = ctx.step(one, max_attempts=2, base_delay=0)
            quick = ctx.step(lambda: 0, name="quick", execution_mode="inline")
            return done + quick + ctx.gather(lambda: 2, lambda: 3)[1]
        except Exception:
            return "swallowed"

    impatient(inline)
    define_flow(inline, body)
    fails(inline, operation, error)
    assert run(inline).result == 4


def test_a_handler_of_a_flow_that_quits_is_recorded_only(inline: Inline) -> None:
    inline.define("w", step(raises(ValueError), name="a", on_error=raises(KeyboardInterrupt)))
    inline.rival.run("w", run_id="r")
    inline.drain()
    assert inline.rival.result("r").error["type"] == "ValueError"  # type: ignore[index]


class Big:
    """Data that a flow has in a variable."""


@pytest.mark.parametrize("ends", ["starts over", "sleeps", "waits for an event"])
def test_the_variables_of_a_flow_that_stops_are_freed_without_a_garbage_collection(inline: Inline, ends: str) -> None:
    seen: list[weakref.ref[Big]] = []

    def body(ctx: Any, input: Any) -> None:
        big = Big()
        seen.append(weakref.ref(big))
        ctx.step(lambda: 1, name="one")
        if ends == "starts over" and input != "again":
            ctx.continue_as("again")
        elif ends == "sleeps":
            ctx.sleep(60)
        elif ends == "waits for an event":
            ctx.await_event("never")

    define_flow(inline, body)
    gc.disable()
    try:
        inline.rival.run("f", run_id="r")
        inline.drain()
        assert seen
        assert [one() for one in seen] == [None] * len(seen)
    finally:
        gc.enable()
