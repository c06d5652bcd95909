"""Several things at once in an async flow: the results are those of asyncio, on the first pass and in every replay."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import random
import threading
import time
from dataclasses import replace
from typing import Any

import pytest

from rival_client.model.timers import EARLY
from rival_workers import StepError
from tests.support.effort import examples
from tests.support.flows import Calls, define, finish, rows, run
from tests.support.inline import Inline, opened

calls = Calls()


@pytest.fixture(autouse=True)
def fresh() -> None:
    calls.clear()


def once(name: str, value: Any = None, seconds: float = 0.0) -> Any:
    return calls.once(name, value, seconds)


def fails(name: str) -> None:
    calls[name] += 1
    raise ValueError(name)


def child(inline: Inline) -> None:
    def body(ctx: Any, input: Any) -> Any:
        ctx.sleep(input["seconds"])
        return input["k"]

    define(inline, body, name="child")


# -- the reported cases -----------------------------------------------------------------------------------


def test_children_that_are_gathered_keep_their_places_whichever_ends_first(inline: Inline) -> None:
    child(inline)

    async def body(ctx: Any) -> Any:
        return await asyncio.gather(*[ctx.call("child", {"k": k, "seconds": 0.3 - 0.05 * k}) for k in range(5)])

    assert run(inline, body) == [0, 1, 2, 3, 4]


def test_steps_that_are_gathered_keep_their_results_in_a_replay(inline: Inline) -> None:
    async def body(ctx: Any) -> Any:
        found = await asyncio.gather(*[ctx.step(once, f"s{k}", k, 0.05 - 0.01 * k) for k in range(5)])
        await ctx.sleep(0.05)
        return found

    assert run(inline, body) == [0, 1, 2, 3, 4]
    assert calls == {f"s{k}": 1 for k in range(5)}


def test_lanes_of_step_sleep_step_come_to_their_own_checkpoints_again(inline: Inline) -> None:
    async def body(ctx: Any) -> Any:
        async def lane(k: int) -> Any:
            first = await ctx.step(once, f"a{k}", k)
            await ctx.sleep(0.05 * (3 - k))
            return await ctx.step(once, f"b{k}", first * 10)

        return await asyncio.gather(*[lane(k) for k in range(3)])

    assert run(inline, body) == [0, 10, 20]
    assert set(calls.values()) == {1}
    names = ("once", "sleep", "once~2")
    assert set(rows(inline)) == {"f", *(f"f/#{lane}:{name}" for lane in (1, 2, 3) for name in names)}


def test_a_sleep_that_takes_too_long_is_given_up(inline: Inline) -> None:
    async def body(ctx: Any) -> Any:
        try:
            await asyncio.wait_for(ctx.sleep(30), 0.1)
        except TimeoutError:
            return "timeout"

    assert run(inline, body) == "timeout"
    assert "cancelled" in rows(inline).values()


def test_the_first_of_several_tasks_is_the_same_in_a_replay(inline: Inline) -> None:
    async def body(ctx: Any) -> Any:
        slow = asyncio.create_task(ctx.sleep(30))
        quick = asyncio.create_task(ctx.step(once, "quick"))
        done, pending = await asyncio.wait({slow, quick}, return_when=asyncio.FIRST_COMPLETED)
        for one in pending:
            one.cancel()
        await ctx.sleep(0.05)
        return [[one.result() for one in done], pending == {slow}]

    assert run(inline, body) == [["quick"], True]
    assert calls == {"quick": 1}


# -- asyncio's ways to wait -------------------------------------------------------------------------------


@pytest.mark.parametrize("url", ["file_url", "postgres_url"])
def test_a_step_that_is_given_up_leaves_its_result_behind(request: pytest.FixtureRequest, url: str) -> None:
    """With a real clock on both stores: the timer comes while the step runs, which ends after it."""
    given_up = threading.Event()

    def slow() -> bool:
        return given_up.wait(60)

    async def body(ctx: Any) -> Any:
        try:
            first = await asyncio.wait_for(ctx.step(slow), 0.1)
        except TimeoutError:
            first = "timeout"
            given_up.set()
        return [first, await asyncio.wait_for(ctx.step(once, "quick"), 60), await ctx.sleep(0.05)]

    with opened(lambda: Inline(request.getfixturevalue(url))) as inline:
        assert run(inline, body) == ["timeout", "quick", None]


def test_a_timeout_block_gives_up_what_it_waits_for(inline: Inline) -> None:
    async def body(ctx: Any) -> Any:
        try:
            async with asyncio.timeout(0.1):
                await ctx.await_event("never")
        except TimeoutError:
            await ctx.sleep(0.05)
            return "timeout"

    assert run(inline, body) == "timeout"
    assert rows(inline)["f/event:never"] == "cancelled"


def test_calls_come_as_they_are_completed(inline: Inline) -> None:
    child(inline)

    async def body(ctx: Any) -> Any:
        ends = asyncio.as_completed([ctx.call("child", {"k": k, "seconds": 0.5 - 0.2 * k}) for k in range(3)])
        found = [await end for end in ends]
        await ctx.sleep(0.05)
        return found

    assert run(inline, body) == [2, 1, 0]


def test_a_failure_in_a_task_group_cancels_the_others(inline: Inline) -> None:
    async def body(ctx: Any) -> Any:
        seen = []

        async def waits() -> None:
            try:
                await ctx.sleep(50)
            except asyncio.CancelledError:
                seen.append(await ctx.step(once, "cleaned"))
                raise

        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(waits())
                group.create_task(ctx.step(fails, "boom"))
        except* Exception as errors:
            seen += [type(error).__name__ for error in errors.exceptions]
        await ctx.sleep(0.05)
        return seen

    assert run(inline, body) == ["cleaned", "StepFailed"]
    assert calls == {"boom": 1, "cleaned": 1}
    assert rows(inline)["f/#1:sleep"] == "cancelled"


def test_the_error_of_a_flow_names_the_failures_of_its_task_group(inline: Inline) -> None:
    async def body(ctx: Any) -> Any:
        async with asyncio.TaskGroup() as group:
            group.create_task(ctx.step(fails, "card declined"))

    define(inline, body)
    inline.rival.run("f", run_id="r")
    finish(inline)
    error = inline.rival.wait("r", timeout=5).error
    assert error is not None
    message = "unhandled errors in a TaskGroup (1 sub-exception): f/fails: ValueError: card declined"
    assert (error["type"], error["message"]) == ("ExceptionGroup", message)
    assert [run.run_id for run in inline.rival.runs(error="declined")] == ["r"]
    [reason] = inline.rival.why("r").reasons
    assert reason.text == f"f failed: ExceptionGroup: {message}."


@pytest.mark.parametrize("url", ["file_url", "postgres_url"])
def test_timers_that_begin_together_end_in_the_order_of_their_lengths(request: pytest.FixtureRequest, url: str) -> None:
    """By a real clock, which goes on while their rows are written."""
    lengths = (0.0013, 0.0012, 0.0011, 0.0010, 0.0014, 0.0009)

    async def body(ctx: Any) -> Any:
        async def waits(seconds: float) -> float:
            await ctx.sleep(seconds)
            return seconds

        tasks = [asyncio.create_task(waits(one)) for one in lengths]
        return [await one for one in asyncio.as_completed(tasks)]

    with opened(lambda: Inline(request.getfixturevalue(url))) as inline:
        assert run(inline, body) == sorted(lengths)
        sleeps = [one for one in inline.rival.state("r").steps if one.kind == "sleep"]
        begun = [one.due_at - dt.timedelta(seconds=n) for one, n in zip(sleeps, lengths, strict=True) if one.due_at]
        assert max(begun) - min(begun) <= dt.timedelta(microseconds=2), "they count from one instant"
        early = [one.due_at - one.completed_at for one in sleeps if one.completed_at and one.due_at]
        assert max(early) <= dt.timedelta(seconds=EARLY)


def test_a_queue_between_lanes_has_the_same_order_in_every_replay(inline: Inline) -> None:
    async def body(ctx: Any) -> Any:
        queue: asyncio.Queue[Any] = asyncio.Queue()
        found: list[Any] = []

        async def produce(name: str, seconds: float) -> None:
            for number in range(2):
                await ctx.sleep(seconds)
                await queue.put([name, number])

        async def consume() -> None:
            for _ in range(4):
                found.append(await queue.get())
                await ctx.step(once, f"{found[-1]}")

        async with asyncio.TaskGroup() as group:
            group.create_task(produce("a", 0.2))
            group.create_task(produce("b", 0.3))
            group.create_task(consume())
        return found

    assert run(inline, body) == [["a", 0], ["b", 0], ["a", 1], ["b", 1]]
    assert set(calls.values()) == {1}


def test_what_is_shielded_goes_on_when_nothing_waits_for_it(inline: Inline) -> None:
    child(inline)

    async def body(ctx: Any) -> Any:
        task = asyncio.create_task(ctx.call("child", {"k": "inner", "seconds": 0.3}))
        try:
            await asyncio.wait_for(asyncio.shield(task), 0.05)
        except TimeoutError:
            return ["late", await task]

    assert run(inline, body) == ["late", "inner"]


def test_lanes_within_lanes(inline: Inline) -> None:
    async def body(ctx: Any) -> Any:
        async def leaf(k: int) -> Any:
            await ctx.sleep(0.03 * (k % 3))
            return await ctx.step(once, f"{k}", k)

        async def half(k: int) -> Any:
            return await asyncio.gather(leaf(10 * k), leaf(10 * k + 1))

        return await asyncio.gather(half(0), half(1))

    assert run(inline, body) == [[0, 1], [10, 11]]
    assert {"f/#1.1:once", "f/#2.2:once"} <= set(rows(inline))


def test_locks_and_semaphores_of_asyncio(inline: Inline) -> None:
    async def body(ctx: Any) -> Any:
        two, alone, order = asyncio.Semaphore(2), asyncio.Lock(), []

        async def lane(k: int) -> None:
            async with two:
                await ctx.sleep(0.02 * (4 - k))
                async with alone:
                    order.append(await ctx.step(once, f"{k}", k))

        await asyncio.gather(*[lane(k) for k in range(4)])
        return order

    found = run(inline, body)
    assert sorted(found) == [0, 1, 2, 3]
    assert set(calls.values()) == {1}


def test_asyncio_sleep_is_durable_and_the_loops_time_goes_by_it(inline: Inline) -> None:
    async def body(ctx: Any) -> Any:
        loop = asyncio.get_running_loop()
        await ctx.step(once, "first")
        before = loop.time()
        await asyncio.sleep(0.1)
        return 0.1 <= loop.time() - before + 0.006 < 5

    assert run(inline, body) is True


def test_an_async_generator_is_replayed_and_closed_when_it_is_left(inline: Inline) -> None:
    async def body(ctx: Any) -> Any:
        async def pages() -> Any:
            try:
                for number in range(5):
                    yield await ctx.step(once, f"page{number}", number)
                    await ctx.sleep(0.02)
            finally:
                await ctx.step(once, "closed")

        found = []
        async for page in pages():
            found.append(page)
            if page == 2:
                break
        await ctx.sleep(0.05)
        return found

    assert run(inline, body) == [0, 1, 2]
    assert calls == {"page0": 1, "page1": 1, "page2": 1, "closed": 1}


def test_what_a_flow_leaves_running_is_cancelled_at_its_end_as_asyncio_run_does(inline: Inline) -> None:
    child(inline)

    async def body(ctx: Any) -> Any:
        async def left() -> None:
            try:
                await ctx.call("child", {"k": 1, "seconds": 3600})
            finally:
                await ctx.step(once, "cleaned")

        task = asyncio.create_task(left())
        waiting = asyncio.create_task(ctx.await_event("never"))
        await ctx.sleep(0.05)
        return [task.done(), waiting.done()]

    assert run(inline, body) == [False, False]
    assert calls == {"cleaned": 1}
    found = rows(inline)
    assert found["f/#1:call:child"] == "cancelled"
    assert found["f/event:never"] == "cancelled"
    inline.keeper.run_once()
    assert inline.rival.state("r/#1:call:child").status == "cancelled"


def test_the_name_of_a_task_names_its_lane(inline: Inline) -> None:
    async def body(ctx: Any) -> Any:
        async def work(k: int) -> Any:
            return await ctx.step(once, f"{k}", k)

        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(work(1), name="import"), group.create_task(work(2), name="import")]
            tasks += [group.create_task(work(3)), group.create_task(work(4), name="no name: a/b")]
        return [task.result() for task in tasks]

    assert run(inline, body) == [1, 2, 3, 4]
    assert {"f/#import:once", "f/#import~2:once", "f/#1:once", "f/#2:once"} <= set(rows(inline))


# -- events and children in lanes -------------------------------------------------------------------------


def test_a_wait_that_was_given_up_takes_no_event(inline: Inline) -> None:
    async def body(ctx: Any) -> Any:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(ctx.await_event("go"), 0.05)
        await ctx.step(inline.rival.send_event, "go", 1)
        await ctx.sleep(0.05)
        return await ctx.await_event("go", timeout=5)

    assert run(inline, body) == 1
    assert rows(inline)["f/event:go"] == "cancelled"


def test_an_event_that_a_given_up_wait_had_got_goes_to_another_run(inline: Inline) -> None:
    """The flow receives the step's end and the event in one commit. The step's came first, and the wait is given up."""

    async def loses(ctx: Any) -> Any:
        wait = asyncio.create_task(ctx.await_event("go"))
        quick = asyncio.create_task(ctx.step(once, "quick"))
        await asyncio.wait([wait, quick], return_when=asyncio.FIRST_COMPLETED)
        wait.cancel()
        await ctx.sleep(0.02)
        return "done"

    real = inline.store.commit_flow

    def commit(held: Any, commit: Any) -> Any:
        """The event comes after the step has ended, and before that is committed."""
        if commit.writes:
            inline.store.deliver_event(inline.rival.send_event("go", 1).event_id)
        writes = [replace(write, ago=write.ago + 60) for write in commit.writes]
        return real(held, replace(commit, writes=writes))

    inline.store.commit_flow = commit  # type: ignore[method-assign]
    assert run(inline, loses) == "done"
    assert rows(inline)["f/event:go"] == "cancelled"
    define(inline, lambda ctx: ctx.await_event("go"), name="other")
    inline.rival.run("other", run_id="other")
    inline.keeper.run_once()
    assert finish(inline, "other") == 1


def test_the_child_of_a_given_up_call_is_cancelled(inline: Inline) -> None:
    child(inline)

    async def body(ctx: Any) -> Any:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(ctx.call("child", {"k": 1, "seconds": 3600}), 0.05)
        await ctx.sleep(0.05)
        return "done"

    assert run(inline, body) == "done"
    inline.keeper.run_once()
    assert inline.rival.state("r/call:child").status == "cancelled"


def test_an_event_is_received_while_another_lane_runs_a_step(inline: Inline) -> None:
    over = threading.Event()

    async def body(ctx: Any) -> Any:
        def long() -> str:
            event_id = inline.rival.send_event("go", "event").event_id
            inline.store.deliver_event(event_id)
            return "step" if over.wait(20) else "too late"

        step = asyncio.create_task(ctx.step(long))
        event = asyncio.create_task(ctx.await_event("go"))
        await asyncio.wait([step, event], return_when=asyncio.FIRST_COMPLETED)
        first = "event" if event.done() else "step"
        over.set()
        return [first, await event, await step]

    assert run(inline, body) == ["event", "event", "step"]


def test_a_step_is_tried_again_in_its_lane_while_another_lane_goes_on(inline: Inline) -> None:
    async def body(ctx: Any) -> Any:
        def flaky() -> int:
            calls["flaky"] += 1
            if calls["flaky"] < 3:
                raise StepError("not yet", behavior="retry")
            return calls["flaky"]

        async def other() -> Any:
            await ctx.sleep(0.05)
            return await ctx.step(once, "other", 4)

        return await asyncio.gather(ctx.step(flaky, max_attempts=5, backoff="none"), other())

    assert run(inline, body) == [3, 4]
    assert calls == {"flaky": 3, "other": 1}


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(examples(1)))
def test_an_event_that_comes_while_the_flow_is_being_suspended_is_not_missed(inline: Inline, seed: int) -> None:
    dice = random.Random(seed)
    senders: list[threading.Thread] = []

    def body(ctx: Any) -> Any:
        handle = ctx.start.await_event("go", key=ctx.run.id)

        def send() -> None:
            time.sleep(dice.random() * 0.02)
            event_id = inline.rival.send_event("go", 1, key=ctx.run.id).event_id
            inline.store.deliver_event(event_id)

        def work() -> None:
            senders.append(threading.Thread(target=send))
            senders[-1].start()

        ctx.gather(work)
        return handle.result()

    define(inline, body)
    for number in range(15):
        inline.rival.run("f", run_id=f"r{number}")
        inline.drain()
        senders[-1].join()
        # No message is published for what this test has delivered by hand.
        inline.rival.recover()
        inline.keeper.run_once()
        assert finish(inline, f"r{number}") == 1


def test_a_flow_begins_again_from_a_lane(inline: Inline) -> None:
    async def body(ctx: Any, input: Any) -> Any:
        turn = input or 0

        async def lane() -> None:
            await ctx.step(once, f"turn{turn}")
            if turn < 3:
                await ctx.continue_as(turn + 1)

        await asyncio.gather(lane(), ctx.sleep(0.02))
        return turn

    assert run(inline, body) == 3
    assert set(calls.values()) == {1}


# -- what cannot be -----------------------------------------------------------------------------------------


async def _to_thread(ctx: Any) -> Any:
    await asyncio.to_thread(time.sleep, 0)


async def _socket(ctx: Any) -> Any:
    await asyncio.open_connection("127.0.0.1", 9)


async def _as_completed(ctx: Any) -> Any:
    async def lane(k: int) -> Any:
        return await ctx.step(once, f"{k}")

    lanes = [lane(k) for k in range(2)]
    try:
        for end in asyncio.as_completed(lanes):
            await end
    finally:
        for one in lanes:
            one.close()


async def _wait(ctx: Any) -> Any:
    await asyncio.wait([ctx.step(once, "a")])


async def _factory(ctx: Any) -> Any:
    asyncio.get_running_loop().set_task_factory(None)


async def _in_step(ctx: Any) -> Any:
    try:
        await ctx.step(lambda: ctx.step(once, "inner"), name="outer")
    except Exception as error:
        raise RuntimeError(str(error)) from None


async def _in_thread(ctx: Any) -> Any:
    errors: list[Exception] = []

    def use() -> None:
        try:
            ctx.step(once, "inner")
        except Exception as error:
            errors.append(error)

    thread = threading.Thread(target=use)
    thread.start()
    thread.join()
    raise errors[0]


@pytest.mark.parametrize(
    "body", [_to_thread, _socket, _as_completed, _wait, _factory, _in_step, _in_thread], ids=lambda body: body.__name__
)
def test_what_a_flow_cannot_use_is_refused_with_a_reason(inline: Inline, body: Any) -> None:
    found = run(inline, body)
    message = (inline.rival.state("r").error or {})["message"]
    assert found == "NotInFlows" or "NotInFlows" in message
    assert calls == {}


def test_a_flow_that_awaits_what_nothing_will_set_is_stuck(inline: Inline) -> None:
    async def body(ctx: Any) -> Any:
        await asyncio.Event().wait()

    assert run(inline, body) == "FlowStuck"


def test_an_async_flow_that_exits_has_failed(inline: Inline) -> None:
    async def body(ctx: Any) -> Any:
        await ctx.step(once, "a")
        raise SystemExit(3)

    assert run(inline, body) == "SystemExit"


def test_a_change_in_one_lane_is_found_although_the_flow_would_catch_it(inline: Inline) -> None:
    def version(name: str) -> Any:
        async def body(ctx: Any) -> Any:
            async def lane() -> Any:
                try:
                    await ctx.step(once, name, name=name)
                    await ctx.await_event("go")
                except Exception:
                    return "caught"

            return await asyncio.gather(lane(), ctx.step(once, "beside"))

        return body

    define(inline, version("before"))
    inline.rival.run("f", run_id="r")
    inline.drain()
    before = rows(inline)
    define(inline, version("after"))
    inline.rival.send_event("go", 1)
    assert finish(inline) == "FlowChanged"
    assert calls == {"before": 1, "beside": 1}
    assert "after" not in calls
    assert set(rows(inline)) == set(before)


def test_a_lane_that_waits_busily_for_another_receives_its_end(inline: Inline) -> None:
    async def lane(ctx: Any, name: str, seconds: float) -> None:
        await ctx.sleep(seconds)
        await ctx.step(once, name)

    async def body(ctx: Any) -> Any:
        for name, seconds in (("a", 0), ("b", 0.3)):
            task = asyncio.create_task(lane(ctx, name, seconds))
            while not task.done():
                await asyncio.sleep(0)
        return "done"

    assert run(inline, body) == "done"
    assert calls == {"a": 1, "b": 1}


def test_a_lane_may_take_many_turns_while_nothing_is_open(inline: Inline) -> None:
    async def body(ctx: Any) -> int:
        for _ in range(5000):
            await asyncio.sleep(0)
        return 5000

    assert run(inline, body) == 5000
