"""Flows on every store: what was done is read, what is new is done once, and what is waited for costs no worker."""

from __future__ import annotations

import asyncio
import datetime as dt
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import select

from rival_client.db.event_tables import deliveries
from rival_client.model.policies.matchers import default
from rival_workers import ChildFailed, StepError, StepFailed, delay_step, flow, parallel, step, wait_event_step
from rival_workers.definition.flows import Flow
from rival_workers.definition.registry import Registry
from tests.support.inline import Clock, Inline


@pytest.fixture
def timed(file_url: str) -> Iterator[Inline]:
    """Where time can be set."""
    opened = Inline(file_url, clock=Clock())
    yield opened
    opened.close()


calls: Counter[str] = Counter()


@pytest.fixture(autouse=True)
def fresh() -> None:
    calls.clear()


def once(name: str, value: Any = None) -> Any:
    calls[name] += 1
    return value


def define(inline: Inline, function: Any, name: str = "f", **options: Any) -> Flow:
    made = flow(name, registry=Registry(), **options)(function)
    assert made.definition is not None
    inline.registry.renew(made.definition)
    inline.process.register_workflows()
    return made


def start(inline: Inline, input: Any = None, run_id: str = "r", workflow: str = "f") -> None:
    inline.rival.run(workflow, input, run_id=run_id)
    inline.drain()


def later(inline: Inline, seconds: float) -> None:
    assert inline.clock is not None
    for part in (max(0.0, seconds - 4), min(4.0, seconds)):
        inline.clock.advance(part)
        inline.keeper.run_once()
        inline.drain()


def rows(inline: Inline, run_id: str = "r") -> dict[str, str]:
    return {found.path: found.status for found in inline.rival.state(run_id).steps}


# -- checkpoints ------------------------------------------------------------------------------------------


def test_a_flow_returns_its_result_and_each_step_is_a_checkpoint(inline: Inline) -> None:
    define(inline, lambda ctx, input: ctx.step(once, "a", input) + ctx.step(once, "b", 1))
    start(inline, 41)
    assert inline.rival.result("r").result == 42
    assert rows(inline) == {"f": "completed", "f/once": "completed", "f/once~2": "completed"}
    assert calls == {"a": 1, "b": 1}


def test_on_resume_finished_steps_are_read_and_not_run(timed: Inline) -> None:
    def body(ctx: Any) -> Any:
        first = ctx.step(once, "a", {"n": 1})
        ctx.sleep(hours=1)
        return [first, ctx.step(once, "b", 2)]

    define(timed, body)
    start(timed)
    assert (timed.rival.state("r").status, rows(timed)["f"]) == ("suspended", "waiting")
    later(timed, 3601)
    assert timed.rival.result("r").result == [{"n": 1}, 2]
    assert calls == {"a": 1, "b": 1}
    [found] = [row for row in timed.rival.state("r").steps if row.path == "f"]
    assert (found.attempts, found.lost) == (1, 0), "a resume uses up nothing"


def test_while_a_flow_sleeps_nothing_is_published_and_no_worker_is_held(timed: Inline) -> None:
    define(timed, lambda ctx: ctx.sleep(days=365))
    start(timed)
    assert timed.doorbell.take() == []
    assert timed.later == []
    assert timed.process.executor.running.all == set()
    later(timed, 365 * 86400 + 1)
    assert timed.rival.result("r").status == "completed"


def test_a_replay_sees_the_same_time_chance_and_ids(timed: Inline) -> None:
    seen: list[Any] = []

    def body(ctx: Any) -> Any:
        seen.append((ctx.now(), ctx.uuid(), ctx.random.random()))
        ctx.sleep(10)
        return str(ctx.uuid())

    define(timed, body)
    start(timed)
    later(timed, 11)
    assert len(seen) == 2
    assert seen[0] == seen[1]
    assert timed.rival.result("r").result != str(seen[0][1])


def test_a_step_is_retried_with_its_backoff_and_the_flow_waits_meanwhile(timed: Inline) -> None:
    def flaky() -> int:
        calls["flaky"] += 1
        if calls["flaky"] < 3:
            raise StepError("not yet", behavior="retry")
        return calls["flaky"]

    define(timed, lambda ctx: [ctx.step(once, "a"), ctx.step(flaky, max_attempts=3, base_delay=600)][1])
    start(timed)
    assert rows(timed)["f/flaky"] == "waiting_retry"
    later(timed, 601)
    later(timed, 1201)
    assert timed.rival.result("r").result == 3
    assert calls == {"a": 1, "flaky": 3}


def test_the_workflows_policies_hold_for_the_steps_of_its_flows(inline: Inline) -> None:
    def fails_twice() -> int:
        calls["twice"] += 1
        if calls["twice"] < 3:
            raise StepError("not yet", behavior="retry")
        return calls["twice"]

    def fails() -> None:
        raise StepError("never", behavior="retry")

    def body(ctx: Any) -> Any:
        for own in ({}, {"max_attempts": 2}):
            with suppress(StepFailed):
                ctx.step(fails, **own)
        return ctx.gather(fails_twice)

    define(inline, body, policies=[(default, {"max_retries": 2, "backoff": "none", "heartbeat": 60})])
    start(inline)
    assert inline.rival.result("r").result == [3]
    attempts = {step.path: step.attempts for step in inline.rival.state("r").steps}
    assert attempts == {"f": 1, "f/fails": 3, "f/fails~2": 2, "f/fails_twice": 3}


def test_a_step_that_fails_for_good_can_be_caught_and_stays_failed_in_a_replay(timed: Inline) -> None:
    def bad() -> None:
        calls["bad"] += 1
        raise ValueError("no")

    def body(ctx: Any) -> Any:
        try:
            ctx.step(bad)
        except StepFailed as failed:
            ctx.sleep(10)
            return failed.error["type"]

    define(timed, body)
    start(timed)
    later(timed, 11)
    assert (timed.rival.result("r").result, calls["bad"]) == ("ValueError", 1)


def test_a_flow_that_raises_fails_its_run(inline: Inline) -> None:
    define(inline, lambda ctx: ctx.step(lambda: 1 / 0, name="divide"))
    start(inline)
    state = inline.rival.state("r")
    assert (state.status, state.failed_step) == ("failed", "f")
    assert state.error is not None
    assert state.error["type"] == "StepFailed"


def test_a_changed_flow_names_what_it_reaches_as_users_know_it(timed: Inline) -> None:
    define(timed, lambda ctx: ctx.await_event("go"))
    start(timed)
    define(timed, lambda ctx: [ctx.step(once, "a", 1), ctx.await_event("go")])
    timed.rival.send_event("go")
    timed.drain()
    error = timed.rival.state("r").error
    assert error is not None
    assert error["message"] == (
        "run 'r', checkpoint 1: the flow reaches the step 'f/once', but has reached the wait for an event 'f/event:go' "
        "before. Its code has changed under the run. Bring the old code back for it (another version= for the new), or "
        "rewind the run."
    )


def test_a_flow_whose_code_has_changed_under_its_run_stops_and_overwrites_nothing(timed: Inline) -> None:
    define(timed, lambda ctx: [ctx.step(once, "a", 1), ctx.sleep(10)])
    start(timed)
    before = rows(timed)
    define(timed, lambda ctx: [ctx.step(once, "other", 1, name="another"), ctx.sleep(10)])
    later(timed, 11)
    state = timed.rival.state("r")
    assert state.status == "failed"
    assert state.error is not None
    assert state.error["type"] == "FlowChanged"
    assert state.error["message"] == (
        "run 'r', checkpoint 1: the flow reaches the step 'f/another', but has reached the step 'f/once' before. "
        "Its code has changed under the run. Bring the old code back for it (another version= for the new), or "
        "rewind the run."
    )
    assert rows(timed) == before | {"f": "failed", "f/sleep": "cancelled"}, "it waits for nothing any more"
    assert calls == {"a": 1}


def test_another_version_of_a_flow_leaves_runs_in_flight_on_theirs(timed: Inline) -> None:
    define(timed, lambda ctx: [ctx.sleep(10), ctx.step(once, "old", "old")][1], version="1")
    start(timed)
    timed.clock.advance(1)  # type: ignore[union-attr]
    timed.rival._validators.clear()
    define(timed, lambda ctx: ctx.step(once, "new", "new"), version="2")
    start(timed, run_id="r2")
    later(timed, 11)
    assert [timed.rival.result(run_id).result for run_id in ("r", "r2")] == ["old", "new"]


def test_steps_that_are_gathered_are_each_done_once(timed: Inline) -> None:
    def body(ctx: Any) -> Any:
        found = ctx.gather(*((once, f"s{n}", n) for n in range(20)))
        ctx.sleep(10)
        return sum(found)

    define(timed, body)
    start(timed)
    later(timed, 11)
    assert timed.rival.result("r").result == sum(range(20))
    assert calls == {f"s{n}": 1 for n in range(20)}


@pytest.mark.parametrize("how", ["fails", "is over its time"])
def test_what_is_gathered_with_a_step_that_is_tried_again_is_done_once_all_the_same(inline: Inline, how: str) -> None:
    second = threading.Event()

    def again() -> str:
        calls["again"] += 1
        if calls["again"] > 1:
            second.set()
            return "at last"
        if how == "fails":
            raise StepError("not yet", behavior="retry")
        assert second.wait(20)
        return "too late"

    def slow() -> str:
        calls["slow"] += 1
        # Long enough for the other one to be over its time.
        return "early" if second.wait(0.6) else "done"

    tried_again = {"timeout": 0.2, "on_timeout": "retry", "max_attempts": 2, "backoff": "none"}
    define(inline, lambda ctx: ctx.gather(again, slow), policies=[("again", tried_again)])
    start(inline)
    # It is tried again while the other one still runs.
    assert inline.rival.result("r").result == ["at last", "early"]
    assert calls == {"again": 2, "slow": 1}
    assert rows(inline) == {"f": "completed", "f/again": "completed", "f/slow": "completed"}


def test_more_steps_than_run_at_once_are_gathered_although_the_first_are_stuck(inline: Inline) -> None:
    over = threading.Event()

    def work(n: int) -> int:
        return n if n >= 10 or over.wait(20) else -1

    def body(ctx: Any) -> Any:
        try:
            ctx.gather(*((work, n) for n in range(12)), timeout=0.3)
        except StepFailed as failed:
            return failed.error["type"]

    define(inline, body)
    start(inline)
    over.set()
    assert inline.rival.result("r").result == "StepTimeout"
    ended = Counter(rows(inline).values())
    assert ended == {"failed": 10, "completed": 3}, "the flow and the last two are completed"


def test_an_async_flow_awaits_the_same(timed: Inline) -> None:
    async def work(n: int) -> int:
        await asyncio.sleep(0)
        return n + 1

    async def body(ctx: Any, input: Any) -> Any:
        first = await ctx.step(work, input)
        await ctx.sleep(10)
        return [first, await ctx.step(once, "b", 2)]

    define(timed, body)
    start(timed, 1)
    later(timed, 11)
    assert timed.rival.result("r").result == [2, 2]


def test_a_flow_can_be_a_step_of_a_plan_and_a_plan_a_child_of_a_flow(inline: Inline) -> None:
    inline.define("plan", step(lambda input: input["n"] * 2, name="double"))
    made = flow("part", register=False)(lambda ctx, input: ctx.call("plan", {"n": input["n"]}) + 1)
    inline.define("whole", step(lambda: 1, name="first"), made, step(lambda last_step: last_step.result, name="last"))
    start(inline, {"n": 20}, workflow="whole")
    assert inline.rival.result("r").result == 41
    child = inline.rival.state("r/call:plan")
    assert (child.parent_run_id, child.parent_path) == ("r", "part/call:plan")


# -- events -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("first", ["event", "wait"])
def test_an_event_wakes_the_flow_whether_it_comes_before_or_after(inline: Inline, first: str) -> None:
    define(inline, lambda ctx, input: ctx.await_event("paid", key=input))
    if first == "event":
        inline.rival.send_event("paid", {"n": 1}, key="k")
        inline.drain()
    start(inline, "k")
    if first == "wait":
        assert inline.rival.state("r").status == "suspended"
        inline.rival.send_event("paid", {"n": 1}, key="k")
        inline.drain()
    assert inline.rival.result("r").result == {"n": 1}


def test_a_wait_without_its_event_gives_none_when_its_time_is_up(timed: Inline) -> None:
    define(timed, lambda ctx: ctx.await_event("paid", timeout=dt.timedelta(hours=1)))
    start(timed)
    later(timed, 3601)
    assert (timed.rival.result("r").status, timed.rival.result("r").result) == ("completed", None)
    timed.rival.send_event("paid", 1)
    timed.drain()
    assert [event.status for event in timed.rival.events()] == ["kept"]


def test_of_several_topics_the_first_event_counts_and_the_other_is_kept(inline: Inline) -> None:
    def body(ctx: Any) -> Any:
        got = ctx.await_event(["yes", "no"])
        return [got.topic, got.payload]

    define(inline, body)
    start(inline)
    inline.rival.send_event("no", 1)
    inline.rival.send_event("yes", 2)
    inline.drain()
    assert inline.rival.result("r").result == ["no", 1]
    assert [(event.topic, event.status) for event in inline.rival.events()] == [("yes", "kept"), ("no", "consumed")]


# -- children ---------------------------------------------------------------------------------------------


def test_a_child_that_fails_raises_in_its_parent(inline: Inline) -> None:
    inline.define("bad", step(lambda: 1 / 0, name="divide"))

    def body(ctx: Any) -> Any:
        try:
            ctx.call("bad")
        except ChildFailed as failed:
            return failed.error["type"]

    define(inline, body)
    start(inline)
    assert inline.rival.result("r").result == "ZeroDivisionError"


def test_a_child_that_is_not_awaited_is_independent_of_its_parent(inline: Inline) -> None:
    inline.define("slow", step(lambda: "done", name="only"))
    define(inline, lambda ctx: ctx.spawn("slow"))
    start(inline)
    child = inline.rival.result("r").result
    assert child == "r/spawn:slow"
    assert inline.rival.result(child).result == "done"


def test_cancelling_a_parent_cancels_its_children_and_a_cancelled_child_fails_its_parent(timed: Inline) -> None:
    define(timed, lambda ctx: ctx.sleep(days=1), "child")
    define(timed, lambda ctx: ctx.call("child"))
    start(timed)
    start(timed, run_id="r2")
    assert timed.rival.cancel("r")
    assert timed.rival.state("r/call:child").status == "cancelled"
    assert timed.rival.cancel("r2/call:child")
    timed.drain()
    assert timed.rival.state("r2").status == "failed"


def test_a_rewound_flow_shows_and_cancels_its_children_and_calls_new_ones(inline: Inline) -> None:
    define(inline, lambda ctx: ctx.await_event("go", key=ctx.run.id), "child")
    define(inline, lambda ctx: [ctx.step(once, "a"), ctx.spawn("child"), ctx.call("child")])
    start(inline)
    children = {"r/spawn:child", "r/call:child"}
    shown = inline.rival.rewind("r", "f", dry_run=True)
    assert (set(shown.children), inline.rival.state("r/call:child").status) == (children, "suspended")
    assert set(inline.rival.rewind("r", "f").children) == children
    assert {inline.rival.state(child).status for child in children} == {"cancelled"}
    inline.drain()
    assert inline.rival.state("r").status == "suspended"
    inline.rival.send_event("go", "new", key="r/call:child~2")
    inline.drain()
    assert inline.rival.result("r").result == [None, "r/spawn:child~2", "new"]


def test_a_child_of_before_a_rewind_does_not_answer_for_the_new_one(
    inline: Inline, monkeypatch: pytest.MonkeyPatch
) -> None:
    define(inline, lambda ctx: ctx.await_event("go", key=ctx.run.id), "child")
    define(inline, lambda ctx: ctx.call("child"))
    start(inline)
    # Without the cancel that follows: as if the process that rewound it had been killed in between.
    monkeypatch.setattr(inline.rival._operator, "_cancel_orphans", lambda run_id: None)
    inline.rival.rewind("r", "f")
    inline.drain()
    inline.rival.send_event("go", "old", key="r/call:child")
    inline.drain()
    assert inline.rival.result("r/call:child").result == "old"
    assert inline.rival.state("r").status == "suspended"
    inline.rival.send_event("go", "new", key="r/call:child~2")
    inline.drain()
    assert inline.rival.result("r").result == "new"


# -- going on ---------------------------------------------------------------------------------------------


def test_a_flow_that_continues_keeps_its_run_and_leaves_no_rows_behind(inline: Inline) -> None:
    def body(ctx: Any, input: Any) -> Any:
        n = ctx.step(once, "turn", input["n"] + 1)
        return n if n == 20 else ctx.continue_as({"n": n})

    define(inline, body)
    start(inline, {"n": 0})
    assert (inline.rival.result("r").result, calls["turn"]) == (20, 20)
    assert rows(inline) == {"f": "completed", "f/once": "completed"}


@pytest.mark.parametrize("place", ["f", "all/f"])
def test_a_topic_or_a_name_with_slashes_is_like_any_other(inline: Inline, place: str) -> None:
    def body(ctx: Any) -> Any:
        return [ctx.step(once, "a", 1, name="x/y/z"), ctx.await_event("orders/eu/paid"), ctx.call("child")]

    define(inline, lambda ctx: ctx.await_event("child/go"), "child")
    its_flow = flow("f", register=False)(body)
    inline.define("w", its_flow if place == "f" else parallel("all", [[its_flow], [wait_event_step("never")]]))
    start(inline, workflow="w")
    inline.rival.send_event("orders/eu/paid", 2)
    inline.drain()
    inline.rival.send_event("child/go", 3)
    inline.drain()
    [found] = [row for row in inline.rival.state("r").steps if row.path == place]
    assert (found.status, found.result) == ("completed", [1, 2, 3])


def test_a_topic_that_is_named_twice_is_waited_for_once(inline: Inline) -> None:
    define(inline, lambda ctx: ctx.await_event(["go", "stop", "go"]).payload)
    start(inline)
    inline.rival.send_event("go", 7)
    inline.drain()
    assert inline.rival.result("r").result == 7


@pytest.mark.parametrize("ends", ["fails", "returns", "fails in a lane"])
def test_a_flow_that_has_ended_takes_no_event_for_a_wait_that_it_has_not_come_to_again(
    timed: Inline, ends: str
) -> None:
    def body(ctx: Any) -> Any:
        if once("came") is None and calls["came"] == 2:
            return 1 if ends == "returns" else 1 / 0
        return ctx.await_event("go", timeout=60)

    its_flow, beside = flow("f", register=False)(body), delay_step(seconds=3600, name="beside")
    timed.define("w", parallel("all", [[its_flow], [beside]]) if ends == "fails in a lane" else its_flow)
    start(timed, workflow="w")
    later(timed, 61)
    assert timed.rival.state("r").status == ("completed" if ends == "returns" else "failed")
    assert not {"waiting", "waiting_retry", "pending", "running"} & set(rows(timed).values())
    timed.rival.send_event("go", 7)
    timed.drain()
    assert [event.status for event in timed.rival.events()] == ["kept"]
    if ends == "fails":
        timed.rival.retry("r")
        timed.drain()
        assert timed.rival.result("r").result == 7


def test_an_event_for_one_that_a_flow_takes_at_the_last_moment_is_for_no_other(timed: Inline) -> None:
    """Its time is up, so it runs again, but it has not come to its wait yet."""

    def body(ctx: Any, input: Any) -> Any:
        if input == "first" and once("came") is None and calls["came"] == 2:
            timed.store.deliver_event(timed.rival.send_event("go", 7).event_id)
        return ctx.await_event("go", timeout=60 if input == "first" else None)

    define(timed, body)
    start(timed, "first")
    start(timed, "second", run_id="s")
    later(timed, 61)
    assert timed.rival.result("r").result == 7
    assert timed.rival.state("s").status == "suspended"


@pytest.mark.parametrize(("verb", "turns"), [("retry", [1, 2, 3, 3]), ("rewind", [1, 2, 3, 1, 2, 3])])
def test_a_flow_that_has_continued_is_retried_with_its_last_input_and_rewound_to_its_first(
    inline: Inline, verb: str, turns: list[int]
) -> None:
    seen: list[int] = []

    def body(ctx: Any, input: int) -> Any:
        assert ctx.step(once, "a", input) == input, "its checkpoints are those of its input"
        seen.append(input)
        if input < 3:
            ctx.continue_as(input + 1)
        return input if len(seen) > 3 else 1 / 0

    define(inline, body)
    start(inline, 1)
    assert inline.rival.state("r").status == "failed"
    inline.rival.retry("r") if verb == "retry" else inline.rival.rewind("r", "f")
    inline.drain()
    assert (inline.rival.result("r").result, seen) == (3, turns)


@pytest.mark.parametrize("lanes", [False, True])
def test_what_an_operator_did_to_a_run_stays_in_the_history_of_flows_that_continue_later(
    timed: Inline, lanes: bool
) -> None:
    """The rebuild from the history, at the end, agrees with the tables."""

    def body(ctx: Any, input: Any) -> Any:
        ctx.sleep(60)
        return input if input == "again" else ctx.continue_as("again")

    its_flow = flow("f", register=False)(body)
    timed.define("w", parallel("all", [[its_flow], [wait_event_step("never")]]) if lanes else its_flow)
    start(timed, workflow="w")
    timed.rival.cancel("r")
    timed.rival.retry("r")
    timed.drain()
    timed.rival.rewind("r", "all/f" if lanes else "f", by="ann")
    timed.drain()
    later(timed, 61)
    later(timed, 61)
    [rewound] = [entry for entry in timed.rival.history("r") if entry.what == "rewind_run"]
    assert rewound.by == "ann"
    assert rows(timed)["all/f" if lanes else "f"] == "completed"


def test_a_flow_that_continues_does_not_get_again_what_was_for_all(inline: Inline) -> None:
    def body(ctx: Any, input: list[str]) -> Any:
        got = [*input, ctx.await_event(["news", "mine"]).payload]
        return got if got[-1] == "end" else ctx.continue_as(got)

    define(inline, body)
    start(inline, [])
    for payload, delivery in (("one", "all"), ("two", "all"), ("mine", "one"), ("end", "all")):
        inline.rival.send_event("mine" if delivery == "one" else "news", payload, delivery=delivery)  # type: ignore[arg-type]
        inline.drain()
    assert inline.rival.result("r").result == ["one", "two", "mine", "end"]
    with inline.store.database.autocommit() as connection:
        assert len(connection.execute(select(deliveries)).all()) == 3, "what is consumed need not be remembered"


def test_a_flow_that_continues_leaves_alone_what_others_have_done_and_wait_for(inline: Inline) -> None:
    """A lane that waits for an event, one that has failed once, children and logs of its own: all of that stays."""

    def says(log: Any) -> None:
        log.info("hello")
        calls["says"] += 1
        if calls["says"] == 1:
            raise StepError("again", behavior="retry", max_attempts=2, backoff="none")

    def turns(ctx: Any, input: Any) -> Any:
        ctx.log.info("turn")
        ctx.spawn("child" if input == "first" else "waiting")
        ctx.await_event("next", timeout=60)
        return input if input == "second" else ctx.continue_as("second")

    def other(ctx: Any) -> Any:
        return ctx.call("child")

    inline.define("child", step(lambda: 1, name="one"))
    define(inline, lambda ctx: ctx.await_event("never"), "waiting")
    lanes = [[step(says, name="says")], [wait_event_step("go", name="go")]]
    flows = [flow(name, register=False)(body) for name, body in (("turns", turns), ("other", other))]
    inline.define("w", parallel("all", [*lanes, *([one] for one in flows)]))
    start(inline, "first", workflow="w")
    inline.rival.send_event("next", 1)
    inline.drain()
    assert [row.path for row in inline.rival.logs("r") if row.message == "hello"] == ["all/says", "all/says"]
    assert [row.path for row in inline.rival.state("r").attempts] == ["all/says", "all/says"]
    assert [child.parent_path for child in inline.rival.runs(parent="r")] == [
        "all/turns/spawn:waiting",
        "all/other/call:child",
    ]
    recorded = {(entry.path or "").split("/")[-1] for entry in inline.rival.history("r")}
    assert {"says", "go", "other", "call:child"} <= recorded
    assert "spawn:child" not in recorded
    # What the attempt that continued has logged last may come after that.
    assert sum(row.message == "turn" for row in inline.rival.logs("r")) <= 2
    inline.rival.send_event("go", "gone")
    inline.rival.send_event("next", 2)
    inline.drain()
    result = inline.rival.result("r").result
    assert (result["go"], result["turns"], result["other"]) == ("gone", "second", 1)


@pytest.mark.parametrize(("budget", "messages"), [(60.0, 1), (0.0, 7)], ids=["in place", "by messages"])
def test_a_flow_that_continues_goes_on_in_place_while_its_message_may(
    inline: Inline, budget: float, messages: int
) -> None:
    inline.coordinator.settings = replace(inline.settings, continuation_budget=budget)
    define(inline, lambda ctx, input: input if input == 5 else ctx.continue_as(input + 1))
    inline.rival.run("f", 0, run_id="r")
    assert len(inline.drain()) == messages
    assert inline.rival.result("r").result == 5


def test_a_flow_that_continues_while_its_run_is_paused_goes_on_when_it_is_resumed(inline: Inline) -> None:
    def body(ctx: Any, input: int) -> Any:
        if input == 0:
            inline.rival.pause("r")
        return input if input == 2 else ctx.continue_as(input + 1)

    define(inline, body)
    start(inline, 0)
    assert rows(inline) == {"f": "pending"}
    assert inline.process.executor.running.all == set()
    inline.rival.resume("r")
    inline.drain()
    assert inline.rival.result("r").result == 2


def test_what_a_flow_cleans_up_is_done_before_it_starts_over(inline: Inline) -> None:
    """The new beginning is committed when the function has ended, so its cleaning belongs to the old attempt."""
    seen: list[Any] = []

    def body(ctx: Any, input: int) -> Any:
        ctx.step(once, "turn")
        try:
            return input if input else ctx.continue_as(1)
        finally:
            seen.append((input, rows(inline)))

    define(inline, body)
    start(inline, 0)
    assert inline.rival.result("r").result == 1
    assert seen == [(turn, {"f": "running", "f/once": "completed"}) for turn in (0, 1)]


@pytest.mark.parametrize(
    "act", [lambda ctx: ctx.step(once, "late"), lambda ctx: ctx.continue_as(1)], ids=["step", "continue"]
)
def test_a_flow_that_was_taken_over_meanwhile_can_change_nothing_any_more(inline: Inline, act: Any) -> None:
    def body(ctx: Any) -> Any:
        ctx.step(once, "first")
        [running] = inline.store.running_on(inline.process.executor.id)
        token = inline.store.take_over_step(running.claim)
        assert token is not None
        assert inline.store.claim_step(replace(running.claim, token=token), None, "another") is not None
        act(ctx)

    define(inline, body)
    start(inline)
    assert rows(inline) == {"f": "running", "f/once": "completed"}
    assert inline.rival.state("r").steps[0].executor == "another"
    assert inline.rival.history("r")[-1].what == "late_result_refused"


def test_what_a_flow_does_forgives_its_losses_and_a_new_beginning_its_attempts(inline: Inline) -> None:
    seen: list[tuple[int, int]] = []

    def body(ctx: Any, input: Any, run: Any) -> Any:
        if input == 0 and run.attempt == 1:
            raise StepError("again", behavior="retry")
        [running] = inline.store.running_on(inline.process.executor.id)
        if not seen:
            seen.append((running.attempts, running.lost))
            inline.store.take_over_step(running.claim)
            return None
        before = (running.attempts, running.lost)
        ctx.step(once, "turn")
        [running] = inline.store.running_on(inline.process.executor.id)
        seen.extend([before, (running.attempts, running.lost)])
        return "end" if input else ctx.continue_as(1)

    inline.define("w", step(flow("f", register=False)(body), max_attempts=2, backoff="none"))
    start(inline, 0, workflow="w")
    inline.rival.recover()
    inline.keeper.run_once()
    inline.drain()
    assert inline.rival.result("r").result == "end"
    assert seen == [(2, 0), (2, 1), (2, 0), (1, 0), (1, 0)]


def test_a_retry_does_not_try_again_what_the_flow_has_caught(inline: Inline) -> None:
    def fails_once(name: str) -> str:
        calls[name] += 1
        if calls[name] == 1:
            raise ValueError("not this time")
        return name

    def body(ctx: Any) -> Any:
        try:
            found = ctx.step(fails_once, "first choice")
        except StepFailed:
            found = ctx.step(once, "second choice", "second choice")
        return [found, *ctx.gather((fails_once, "gathered"), (once, "beside it", "beside it"))]

    define(inline, body)
    start(inline)
    assert inline.rival.state("r").status == "failed"
    preview = inline.rival.retry("r", dry_run=True)
    assert preview.runs_again == ("f", "f/fails_once~2")
    inline.rival.retry("r")
    inline.drain()
    assert inline.rival.result("r").result == ["second choice", "gathered", "beside it"]
    assert calls == {"first choice": 1, "second choice": 1, "gathered": 2, "beside it": 1}


def test_a_message_for_a_flow_that_comes_again_changes_nothing(timed: Inline) -> None:
    define(timed, lambda ctx: [ctx.step(once, "a"), ctx.sleep(10), ctx.step(once, "b")])
    timed.rival.run("f", run_id="r")
    step_messages = timed.doorbell.take()
    for step_message in step_messages * 3:
        timed.deliver(step_message)
    sleeping = timed.doorbell.take()
    timed.clock.advance(11)  # type: ignore[union-attr]
    for step_message in sleeping * 3:
        timed.deliver(step_message)
    assert calls == {"a": 1, "b": 1}


def test_a_late_result_of_a_flow_that_was_cancelled_is_refused(inline: Inline) -> None:
    def body(ctx: Any) -> Any:
        ctx.step(lambda: inline.rival.cancel("r"), name="cancels_itself")
        once("never")

    define(inline, body)
    start(inline)
    assert inline.rival.state("r").status == "cancelled"
    assert calls == {}
    assert [entry.what for entry in inline.rival.history("r")][-1] == "late_result_refused"


def test_a_flow_of_very_many_checkpoints_reads_them_at_once(timed: Inline, monkeypatch: pytest.MonkeyPatch) -> None:
    def body(ctx: Any) -> Any:
        total = sum(ctx.step(once, "s", 1) for _ in range(300))
        ctx.sleep(10)
        return total

    define(timed, body)
    start(timed)
    reads: Counter[str] = Counter()
    real = timed.store.read_checkpoints

    def counted(run_id: str, path: str) -> Any:
        reads["read"] += 1
        return real(run_id, path)

    monkeypatch.setattr(timed.store, "read_checkpoints", counted)
    later(timed, 11)
    assert (timed.rival.result("r").result, calls["s"], reads["read"]) == (300, 300, 1)


def test_a_failed_flow_that_is_retried_goes_on_from_what_it_has_done(inline: Inline) -> None:
    def fails_once() -> int:
        calls["fails"] += 1
        if calls["fails"] == 1:
            raise ValueError("no")
        return calls["fails"]

    inline.define("child", step(fails_once, name="only"))
    define(inline, lambda ctx: [ctx.step(once, "a", 1), ctx.call("child")])
    start(inline)
    assert inline.rival.state("r").status == "failed"
    inline.rival.retry("r")
    inline.drain()
    assert inline.rival.result("r").result == [1, 2]
    assert calls == {"a": 1, "fails": 2}
    assert inline.rival.state("r/call:child~2").parent_path == "f/call:child"
