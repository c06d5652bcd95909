"""`ctx.gather`, `ctx.first`, `ctx.start` and `ctx.spawn`, in sync and async flows; and what a flow does while it
stops.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
from typing import Any

import pytest
from pydantic import BaseModel

from rival_client.db.run_tables import workflows
from rival_workers import ChildFailed, ChildHandle
from tests.support.flows import Calls, define, rows, run
from tests.support.inline import Inline

calls = Calls()


@pytest.fixture(autouse=True)
def fresh() -> None:
    calls.clear()


def once(name: str, value: Any = None, seconds: float = 0.0) -> Any:
    return calls.once(name, value, seconds)


def child(inline: Inline) -> None:
    def body(ctx: Any, input: Any) -> Any:
        ctx.sleep(input["seconds"])
        if input["k"] == "bad":
            raise ValueError("bad")
        return input["k"]

    define(inline, body, name="child")


# -- gather and first -------------------------------------------------------------------------------------


def test_children_that_a_sync_flow_gathers_keep_their_places(inline: Inline) -> None:
    child(inline)

    def body(ctx: Any) -> Any:
        return ctx.gather(*((ctx.call, "child", {"k": k, "seconds": 0.2 - 0.05 * k}) for k in range(4)))

    assert run(inline, body) == [0, 1, 2, 3]


def test_a_sync_flow_gathers_everything_that_takes_time(inline: Inline) -> None:
    child(inline)

    def body(ctx: Any) -> Any:
        event = functools.partial(ctx.await_event, "go", timeout=5)
        ctx.step(inline.rival.send_event, "go", "event")
        return ctx.gather(
            once0,
            (once, "a", 1),
            (ctx.step, once, "b", 2),
            (ctx.sleep, 0.05),
            event,
            (ctx.call, "child", {"k": "child", "seconds": 0.05}),
            ctx.start.step(once, "c", 3),
        )

    assert run(inline, body) == [0, 1, 2, None, "event", "child", 3]
    assert set(calls.values()) == {1}


def once0() -> int:
    return int(once("zero", 0) or 0)


def test_what_gather_cannot_begin_is_refused(inline: Inline) -> None:
    assert run(inline, lambda ctx: ctx.gather((ctx.now,))) == "InvalidArgument"


@pytest.mark.parametrize("cancel", [False, True])
def test_the_first_of_several_wins_and_the_others_go_on_or_are_cancelled(inline: Inline, cancel: bool) -> None:
    child(inline)

    def body(ctx: Any) -> Any:
        slow = ctx.start.call("child", {"k": "slow", "seconds": 3600 if cancel else 0.4})
        won = ctx.first(slow, (ctx.sleep, 0.05), (ctx.sleep, 30), cancel_others=cancel)
        ctx.sleep(0.05)
        if cancel:
            return [won.index, won.result(), slow.done, len(won.others)]
        return [won.index, won.result(), slow.result(), len(won.others)]

    assert run(inline, body) == [1, None, True if cancel else "slow", 2]
    inline.keeper.run_once()
    assert inline.rival.state("r/call:child").status == ("cancelled" if cancel else "completed")
    assert rows(inline)["f/sleep~2"] == "cancelled", "what is open at the end is given up"


def test_an_async_flow_awaits_the_first_of_several(inline: Inline) -> None:
    child(inline)

    async def body(ctx: Any) -> Any:
        won = await ctx.first(
            ctx.call("child", {"k": "quick", "seconds": 0.05}),
            (ctx.sleep, 30),
            ctx.await_event("never"),
            cancel_others=True,
        )
        await ctx.sleep(0.05)
        return [won.index, won.result(), await won.handle]

    assert run(inline, body) == [0, "quick", "quick"]
    assert rows(inline)["f/event:never"] == "cancelled"


def test_a_failure_may_come_first(inline: Inline) -> None:
    child(inline)

    def body(ctx: Any) -> Any:
        won = ctx.first((ctx.call, "child", {"k": "bad", "seconds": 0.02}), (ctx.sleep, 30))
        try:
            won.result()
        except ChildFailed as failed:
            return [won.index, failed.error["type"]]

    assert run(inline, body) == [0, "ValueError"]


def test_an_async_gather_that_is_cancelled_gives_up_what_it_waits_for(inline: Inline) -> None:
    async def body(ctx: Any) -> Any:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(ctx.gather((ctx.sleep, 30), (ctx.await_event, "never")), 0.05)
        return "done"

    assert run(inline, body) == "done"
    assert (rows(inline)["f/sleep"], rows(inline)["f/event:never"]) == ("cancelled", "cancelled")


def test_a_handle_that_was_cancelled_has_no_result(inline: Inline) -> None:
    def body(ctx: Any) -> Any:
        handle = ctx.start.sleep(30)
        ctx.sleep(0.02)
        handle.cancel()
        return handle.result()

    assert run(inline, body) == "NotInFlows"


# -- spawned children -------------------------------------------------------------------------------------


@pytest.mark.parametrize("ended", [False, True], ids=["while it runs", "after it has ended"])
@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
def test_a_spawned_child_can_be_awaited_later(inline: Inline, ended: bool, is_async: bool) -> None:
    child(inline)
    seconds = 0.3 if not ended else 0.05
    first, second = (0.05, 0.05) if not ended else (0.3, 0.05)

    def waits(ctx: Any) -> Any:
        handle = ctx.spawn("child", {"k": "k", "seconds": seconds})
        assert isinstance(handle, ChildHandle)
        ctx.sleep(first)
        found = [handle.run_id, handle.result(), handle.result()]
        ctx.sleep(second)
        return found

    async def awaits(ctx: Any) -> Any:
        handle = await ctx.spawn("child", {"k": "k", "seconds": seconds})
        await ctx.sleep(first)
        found = [handle.run_id, await handle, await handle]
        await ctx.sleep(second)
        return found

    assert run(inline, awaits if is_async else waits) == ["r/spawn:child", "k", "k"]
    assert rows(inline)["f/spawn:child/result"] == "completed"


def test_several_spawned_children_are_awaited_at_once(inline: Inline) -> None:
    child(inline)

    async def body(ctx: Any) -> Any:
        handles = [await ctx.spawn("child", {"k": k, "seconds": 0.3 - 0.1 * k}) for k in range(3)]
        await ctx.sleep(0.02)
        won = await ctx.first(*handles)
        return [won.index == won.result(), await asyncio.gather(*handles)]

    assert run(inline, body) == [True, [0, 1, 2]]


def test_a_spawned_child_that_fails_raises_when_it_is_awaited(inline: Inline) -> None:
    child(inline)

    def body(ctx: Any) -> Any:
        handle = ctx.spawn("child", {"k": "bad", "seconds": 0.0})
        ctx.sleep(0.05)
        try:
            return handle.result()
        except ChildFailed as failed:
            return failed.error["type"]

    assert run(inline, body) == "ValueError"


def test_a_spawned_child_goes_on_when_its_parent_stops_waiting_for_it(inline: Inline) -> None:
    child(inline)

    async def body(ctx: Any) -> Any:
        handle = await ctx.spawn("child", {"k": "k", "seconds": 0.3})
        try:
            await asyncio.wait_for(handle, 0.05)
        except TimeoutError:
            return ["late", await handle]

    assert run(inline, body) == ["late", "k"]
    found = rows(inline)
    assert (found["f/spawn:child/result"], found["f/spawn:child/result~2"]) == ("cancelled", "completed")


def test_a_workflow_that_is_not_registered_fails_its_call_for_good(inline: Inline) -> None:
    def body(ctx: Any) -> Any:
        found = []
        for start in (lambda: ctx.call("nobody"), lambda: ctx.spawn("nobody")):
            try:
                start()
            except ChildFailed as failed:
                found.append(failed.error["type"])
        ctx.sleep(0.05)
        return found

    assert run(inline, body) == ["UnknownWorkflow", "UnknownWorkflow"]


class Payment(BaseModel):
    amount: int


def pay(inline: Inline) -> None:
    define(inline, lambda ctx: "paid", name="pay", input=Payment)


MISFIT = "The input does not fit workflow 'pay'; no run was started:\n  - \"amount\" is a required property"


@pytest.mark.parametrize("how", ["call", "start.call", "spawn", "gather"])
def test_an_input_that_does_not_fit_a_child_starts_no_run_and_fails_the_call(inline: Inline, how: str) -> None:
    pay(inline)
    replays: list[int] = []

    def body(ctx: Any) -> Any:
        replays.append(1)
        wrong = {"amuont": "ten"}
        try:
            if how == "call":
                return ctx.call("pay", wrong)
            if how == "start.call":
                return ctx.start.call("pay", wrong).result()
            if how == "gather":
                return ctx.gather((ctx.call, "pay", wrong))
            return ctx.spawn("pay", wrong).result()
        except ChildFailed as failed:
            ctx.sleep(0.1)
            return [failed.error["type"], failed.error["message"], failed.child_run]

    assert run(inline, body) == ["InvalidInput", MISFIT, None]
    assert len(replays) > 1
    assert [one.workflow for one in inline.rival.runs()] == ["f"]


def test_the_problems_of_a_childs_input_do_not_quote_it(inline: Inline) -> None:
    pay(inline)

    def body(ctx: Any) -> Any:
        try:
            return ctx.call("pay", {"amount": "hunter2"})
        except ChildFailed as failed:
            return failed.error["message"]

    shown = MISFIT.split("\n")[0] + '\n  - amount: the value is not of type "integer"'
    assert run(inline, body) == shown


def test_a_child_that_runs_is_not_checked_again_when_its_model_has_changed(inline: Inline) -> None:
    define(inline, lambda ctx: ctx.await_event("go"), name="child")

    def body(ctx: Any) -> Any:
        return ctx.call("child", {"amount": 1})

    define(inline, body, name="parent")
    run_id = inline.rival.run("parent").run_id
    inline.drain()
    with inline.store.database.transaction() as connection:
        schema = {"type": "object", "required": ["another"]}
        connection.execute(workflows.update().where(workflows.c.name == "child").values(input_schema=schema))
    inline.rival.send_event("go", "went")
    inline.drain()
    assert inline.rival.result(run_id).result == "went"


def test_waiting_for_a_child_that_the_flow_has_cancelled_says_so(inline: Inline) -> None:
    child(inline)

    def body(ctx: Any) -> Any:
        handle = ctx.start.call("child", {"k": "k", "seconds": 60})
        ctx.sleep(0.02)
        handle.cancel()
        try:
            handle.result()
        except ChildFailed as failed:
            return [failed.error["type"], str(failed)]

    text = "f/call:child: ChildCancelled: the flow has cancelled it, so it has no result"
    assert run(inline, body) == ["ChildCancelled", text]


# -- while a flow stops -----------------------------------------------------------------------------------


class Resource:
    """Opened and closed by steps of a flow."""

    def __init__(self, ctx: Any) -> None:
        self.ctx = ctx

    def __enter__(self) -> None:
        self.ctx.step(once, "open")

    def __exit__(self, *_: object) -> None:
        self.ctx.step(once, "close")

    async def __aenter__(self) -> None:
        await self.ctx.step(once, "open")

    async def __aexit__(self, *_: object) -> None:
        await self.ctx.step(once, "close")


def _finally(ctx: Any) -> Any:
    ctx.step(once, "open")
    try:
        ctx.sleep(30)
        ctx.step(once, "work")
    finally:
        ctx.step(once, "close")
    return "done"


def _except(ctx: Any) -> Any:
    ctx.step(once, "open")
    try:
        ctx.sleep(30)
    except BaseException:
        ctx.state["caught"] = True
        ctx.step(once, "never")
        ctx.spawn("f")
        return "caught"
    ctx.step(once, "close")
    return "done"


def _swallows(ctx: Any) -> Any:
    """Whatever it catches, it goes on and returns."""
    for name in ("open", "close"):
        try:
            ctx.step(once, name)
            ctx.sleep(30)
            ctx.heartbeat({"at": name})
        except BaseException:
            pass
    return "done"


def _exit_stack(ctx: Any) -> Any:
    with contextlib.ExitStack() as stack:
        stack.enter_context(Resource(ctx))
        stack.callback(lambda: ctx.step(once, "callback"))
        ctx.sleep(30)
        try:
            ctx.await_event("never", timeout=30)
        except BaseException:
            ctx.step(once, "never")
    return "done"


def _exits(ctx: Any) -> Any:
    ctx.step(once, "open")
    try:
        ctx.sleep(30)
    finally:
        if not calls["work"]:
            with contextlib.suppress(BaseException):
                ctx.step(once, "work")
            if not calls["work"]:
                raise SystemExit(1)
    return "done"


def _returns(ctx: Any) -> Any:
    ctx.step(once, "open")
    try:
        ctx.sleep(30)
        ctx.step(once, "work")
    finally:
        return "done"  # noqa: B012


async def _async_with(ctx: Any) -> Any:
    async with Resource(ctx):
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(ctx.sleep(30))
                group.create_task(ctx.await_event("never", timeout=60))
        finally:
            await ctx.step(once, "inner")
    return "done"


async def _async_except(ctx: Any) -> Any:
    async with Resource(ctx):
        try:
            await ctx.sleep(30)
        except BaseException:
            await ctx.step(once, "never")
            raise
        finally:
            await ctx.step(once, "inner")
    return "done"


@pytest.mark.parametrize(
    "body",
    [_finally, _except, _swallows, _exit_stack, _exits, _returns, _async_with, _async_except],
    ids=lambda body: body.__name__,
)
def test_while_a_flow_stops_nothing_that_it_asks_for_has_an_effect(inline: Inline, body: Any) -> None:
    define(inline, body)
    inline.rival.run("f", run_id="r")
    inline.drain()
    assert calls == {"open": 1}, "it has been suspended, and nothing was released"
    assert inline.rival.state("r").status == "suspended"
    for _ in range(3):
        inline.time_passes(200)
        inline.keeper.run_once()
        inline.drain()
    assert inline.rival.result("r").result == "done"
    assert set(calls.values()) == {1}
    assert "never" not in calls
    assert inline.rival.runs(parent="r") == []


def test_what_a_flow_logs_while_it_stops_is_not_stored(inline: Inline) -> None:
    def body(ctx: Any) -> Any:
        try:
            ctx.sleep(0.05)
        finally:
            ctx.log.info("released")

    run(inline, body)
    assert [entry.message for entry in inline.rival.logs("r")] == ["released"]


def test_a_flow_that_was_cancelled_in_the_middle_can_do_nothing_any_more(inline: Inline) -> None:
    def body(ctx: Any) -> Any:
        try:
            ctx.step(lambda: inline.rival.cancel("r"), name="cancels")
        finally:
            ctx.step(once, "released")

    assert run(inline, body) == "cancelled"
    assert calls == {}
