"""Mistakes in the code of flows: a missing await, wrong shapes of calls, caught stops, repeated log entries."""

from __future__ import annotations

import asyncio
import logging
from contextlib import ExitStack, suppress
from typing import Any

import pytest

from rival_workers import StepError, step
from tests.contract.test_flows import define, start
from tests.support.inline import Inline


def one() -> int:
    return 1


def failed(inline: Inline, body: Any) -> dict[str, Any]:
    define(inline, body)
    start(inline)
    state = inline.rival.state("r")
    assert state.status == "failed"
    assert state.error is not None
    assert not any(private in state.error["message"] for private in ("_Ended", "pickle", "_first", "_gathered"))
    return state.error


# -- what is returned -------------------------------------------------------------------------------------


async def continues(ctx: Any) -> Any:
    return ctx.continue_as(1)


async def takes_the_first(ctx: Any) -> Any:
    return ctx.first(one, (ctx.sleep, 60))


async def gathers(ctx: Any) -> Any:
    return ctx.gather(one, one)


async def returns_a_call(ctx: Any) -> Any:
    return ctx.step(one)


async def returns_a_handle(ctx: Any) -> Any:
    return ctx.start.step(one)


async def returns_a_coroutine(ctx: Any) -> Any:
    async def lane() -> int:
        return 1

    return lane()


RETURNED = {
    continues: "returned ctx.continue_as(…) without awaiting it: write return await ctx.continue_as(…)",
    takes_the_first: "returned ctx.first(…) without awaiting it: write return await ctx.first(…)",
    gathers: "returned ctx.gather(…) without awaiting it: write return await ctx.gather(…)",
    returns_a_call: "returned ctx.step(…) without awaiting it: write return await ctx.step(…)",
    returns_a_handle: "returned handle without awaiting it: write return await handle",
    returns_a_coroutine: "returned lane(…) without awaiting it: write return await lane(…)",
    lambda ctx: ctx: "returned ctx, which is not a value: return values",
    lambda ctx: ctx.start.step(one): "returned a handle, which is not a value: return handle.result()",
    lambda ctx: ctx.first(one): "returned what ctx.first gives, which is not a value: return first.result()",
}


@pytest.mark.filterwarnings("ignore:.*was never awaited")
@pytest.mark.parametrize(("body", "message"), RETURNED.items())
def test_what_cannot_be_a_result_is_refused_with_what_to_write(inline: Inline, body: Any, message: str) -> None:
    error = failed(inline, body)
    assert (error["type"], error["message"]) == ("NotInFlows", f"flow 'f' {message}")


WITHIN = {
    "ctx": (lambda ctx: {"all": [ctx]}, "ctx, which cannot be stored: take the values that you need out of it"),
    "a handle": (lambda ctx: [ctx.start.step(one)], "a handle: take its result, handle.result() or await handle"),
    "a first": (lambda ctx: [ctx.first(one)], "what ctx.first gives: take its result()"),
}


@pytest.mark.parametrize("what", WITHIN)
def test_what_cannot_be_part_of_a_result_is_named(inline: Inline, what: str) -> None:
    body, message = WITHIN[what]
    assert failed(inline, body)["message"] == f"the result of step 'f' of run 'r' is not JSON: it holds {message}"


@pytest.mark.filterwarnings("ignore:.*was never awaited")
def test_a_call_that_was_not_awaited_is_named_where_it_is_part_of_a_value(inline: Inline) -> None:
    async def body(ctx: Any) -> Any:
        return {"now": ctx.now()}

    async def gives_it_to_a_child(ctx: Any) -> Any:
        return await ctx.call("child", {"value": ctx.step(one)})

    assert failed(inline, body)["message"] == (
        "the result of step 'f' of run 'r' is not JSON: it holds the coroutine now(…): is an await missing?"
    )
    define(inline, gives_it_to_a_child, "g")
    start(inline, run_id="s", workflow="g")
    assert (inline.rival.state("s").error or {})["message"] == (
        "the input of a child run is not JSON: it holds a call on ctx that was not awaited"
    )


@pytest.mark.filterwarnings("ignore:.*was never awaited")
def test_a_call_that_was_not_awaited_is_a_warning_in_the_log_of_each_run(
    inline: Inline, caplog: pytest.LogCaptureFixture
) -> None:
    async def body(ctx: Any) -> int:
        ctx.step(one)
        return 1

    define(inline, body, "g")
    for run_id in ("s", "t"):
        start(inline, run_id=run_id, workflow="g")
        assert caplog.messages == [
            f"run {run_id} of g: g/one was never awaited, so it was not done. Write await ctx.…(…)"
        ]
        caplog.clear()


def test_a_step_that_returns_ctx_gets_an_error_that_says_so(inline: Inline) -> None:
    inline.define("w", step(lambda ctx: ctx, name="a"))
    start(inline, workflow="w")
    assert (inline.rival.state("r").error or {})["message"] == (
        "the result of step 'a' of run 'r' is not JSON: it holds ctx, which cannot be stored: take the values "
        "that you need out of it"
    )


# -- shapes of calls --------------------------------------------------------------------------------------

SHAPES = {
    "empty tuple": ("calls[1]", lambda ctx: ctx.gather(one, ())),
    "empty list": ("calls[0]", lambda ctx: ctx.gather([])),
    "none": ("calls[0]", lambda ctx: ctx.gather(None)),
    "text": ("calls[0]", lambda ctx: ctx.first("one")),
    "a tuple without a function": ("calls[0]", lambda ctx: ctx.first((1, one))),
    "ctx": ("calls[0]", lambda ctx: ctx.gather(ctx)),
    "what cannot be started": ("calls[0]", lambda ctx: ctx.gather((ctx.now,))),
    "too few arguments": ("calls[0]", lambda ctx: ctx.gather((ctx.call,))),
    "too many arguments": ("calls[0]", lambda ctx: ctx.gather((ctx.sleep, 1, 2, 3))),
    "nothing": ("calls", lambda ctx: ctx.first()),
    "flag": ("cancel_others", lambda ctx: ctx.first(one, cancel_others="yes")),
    "options without a step": ("timeout", lambda ctx: ctx.gather((ctx.sleep, 1), timeout=3)),
}


@pytest.mark.parametrize("what", SHAPES)
@pytest.mark.parametrize("is_async", [False, True])
def test_a_wrong_shape_is_an_invalid_argument(inline: Inline, what: str, is_async: bool) -> None:
    argument, call = SHAPES[what]

    async def awaits(ctx: Any) -> Any:
        return await call(ctx)

    error = failed(inline, awaits if is_async else call)
    assert error["type"] == "InvalidArgument"
    assert error["message"].startswith(f"Invalid argument {argument}: ")
    assert "unpack" not in error["message"]
    assert "FlowCalls" not in error["message"]


def test_a_coroutine_is_not_a_call(inline: Inline) -> None:
    async def body(ctx: Any) -> Any:
        async def lane() -> None:
            pass

        return await ctx.gather(lane())

    assert failed(inline, body)["message"] == (
        "Invalid argument calls[0]: a coroutine is not a call. Await it, or use asyncio.gather. ctx.gather and "
        "ctx.first take functions, tuples of a function (or of ctx.step, ctx.call, ctx.sleep, ctx.sleep_until, "
        "ctx.await_event) and its arguments, and handles."
    )


# -- stops that are caught --------------------------------------------------------------------------------


#: A flow that never gives up would occupy the test's process forever.
CATCHES = 250


def loops_around_a_wait(ctx: Any) -> Any:
    for _ in range(CATCHES):
        try:
            return ctx.await_event("go")
        except BaseException:
            continue
    return None


def suppresses_all(ctx: Any) -> Any:
    for _ in range(CATCHES):
        with suppress(BaseException):
            return ctx.await_event("go")
    return None


async def loops_in_an_async_flow(ctx: Any) -> Any:
    for _ in range(CATCHES):
        try:
            return await ctx.await_event("go")
        except BaseException:
            continue
    return None


def warnings_in(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "rival.flows"]


@pytest.mark.parametrize("body", [loops_around_a_wait, suppresses_all, loops_in_an_async_flow])
def test_a_flow_that_catches_its_own_stop_in_a_loop_is_reported_once_and_goes_on_later(
    inline: Inline, body: Any, caplog: pytest.LogCaptureFixture
) -> None:
    define(inline, body)
    with caplog.at_level(logging.WARNING, "rival.flows"):
        start(inline)
    assert inline.rival.state("r").status == "suspended"
    [warning] = warnings_in(caplog)
    assert warning == (
        "run r: flow f caught the exception that stops it 100 times and still runs, so it occupies its worker. Catch "
        "Exception around a wait, not BaseException."
    )
    inline.rival.send_event("go", 7)
    inline.drain()
    assert inline.rival.result("r").result == 7


def test_the_finally_blocks_of_a_flow_that_stops_are_not_reported(
    inline: Inline, caplog: pytest.LogCaptureFixture
) -> None:
    def body(ctx: Any) -> Any:
        with ExitStack() as stack:
            for number in range(20):
                stack.callback(ctx.step, one, name=f"release-{number}")
            return ctx.await_event("go")

    define(inline, body)
    with caplog.at_level(logging.WARNING, "rival.flows"):
        start(inline)
        inline.rival.send_event("go", 7)
        inline.drain()
    assert inline.rival.result("r").result == 7
    assert not warnings_in(caplog)


# -- log entries ------------------------------------------------------------------------------------------


def logged(inline: Inline) -> list[str]:
    return [entry.message for entry in inline.rival.logs("r")]


def logs_between_waits(ctx: Any) -> Any:
    ctx.log.info("begins")
    ctx.now()
    ctx.log.info("after a value")
    handle = ctx.start.step(lambda: ctx.log.info("in a step"), name="quiet")
    ctx.log.info("before the first wait")
    ctx.await_event("go")
    handle.result()
    ctx.log.info("between")
    ctx.await_event("go")
    ctx.log.info("ends")


async def logs_in_lanes(ctx: Any) -> Any:
    async def short() -> None:
        ctx.log.info("short begins")
        await ctx.await_event("go")
        ctx.log.info("short ends")

    ctx.log.info("begins")
    lane = asyncio.create_task(short())
    await ctx.await_event("go", key="1")
    ctx.log.info("between")
    await ctx.await_event("go")
    await lane
    ctx.log.info("ends")


def test_what_a_flow_logs_is_logged_once_however_often_it_is_replayed(inline: Inline) -> None:
    define(inline, logs_between_waits)
    start(inline)
    for _ in range(2):
        inline.rival.send_event("go", 1)
        inline.drain()
    assert inline.rival.result("r").status == "completed"
    expected = ["begins", "after a value", "before the first wait", "in a step", "between", "ends"]
    assert logged(inline) == expected


def test_what_the_lanes_of_an_async_flow_log_is_logged_once(inline: Inline) -> None:
    define(inline, logs_in_lanes)
    start(inline)
    for key in ("2", "1", "3"):
        inline.rival.send_event("go", 1, key=key)
        inline.drain()
    assert inline.rival.result("r").status == "completed"
    assert sorted(logged(inline)) == ["begins", "between", "ends", "short begins", "short ends"]


def test_a_step_that_is_tried_again_logs_again(inline: Inline) -> None:
    tried: list[int] = []

    def body(ctx: Any) -> Any:
        def flaky() -> None:
            tried.append(1)
            ctx.log.info(f"try {len(tried)}")
            if len(tried) < 3:
                raise StepError("not yet", behavior="retry")

        ctx.log.info("begins")
        ctx.step(flaky, max_attempts=3, backoff="none")
        ctx.log.info("ends")

    define(inline, body)
    start(inline)
    assert inline.rival.result("r").status == "completed"
    own = [message for message in logged(inline) if "failed" not in message]
    assert own == ["begins", "try 1", "try 2", "try 3", "ends"]


def test_what_comes_after_the_last_checkpoint_of_a_lost_attempt_is_logged_again(inline: Inline) -> None:
    """It may not have been stored: an entry is never left out for a replay."""

    def body(ctx: Any) -> Any:
        ctx.log.info("begins")
        ctx.step(one)
        ctx.log.info("after the step")
        if not lost:
            lost.append(1)
            [running] = inline.store.running_on(inline.process.executor.id)
            inline.store.take_over_step(running.claim)

    lost: list[int] = []
    define(inline, body)
    start(inline)
    inline.rival.recover()
    inline.keeper.run_once()
    inline.drain()
    assert inline.rival.result("r").status == "completed"
    assert logged(inline) == ["begins", "after the step", "after the step"]
