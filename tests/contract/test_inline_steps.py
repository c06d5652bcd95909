"""Inline steps: they run in the process that has ended the step before, without a message, also when that has used up
its continuation budget. Those that follow each other are committed together, and what cannot run in place gets a
message.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from rival_client import DatabaseUnavailable, InvalidArgument
from rival_client.errors import DatabaseRefused
from rival_workers import (
    DefinitionError,
    StepError,
    branch,
    breaker,
    create_workflow,
    delay_step,
    flow,
    for_each,
    limit,
    of_kind,
    parallel,
    rate,
    step,
)
from rival_workers.definition.define import define_workflow
from rival_workers.runtime.attempt import inline_ends
from tests.support.inline import Clock, Inline
from tests.support.output import whole

INLINE: dict[str, Any] = {"execution_mode": "inline"}


@pytest.fixture(params=["sqlite", "postgres"])
def inline(request: pytest.FixtureRequest) -> Iterator[Inline]:
    """A worker that goes on in place with nothing else."""
    url = request.getfixturevalue("file_url" if request.param == "sqlite" else "postgres_url")
    opened = Inline(url, clock=Clock() if request.param == "sqlite" else None, continuation_budget=0.0)
    yield opened
    opened.close()


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine is slow."""
    monkeypatch.setattr(inline_ends, "WITHIN", 60.0)


def works() -> str:
    return "done"


def inlined(name: str, **options: Any) -> Any:
    return step(works, name=name, **INLINE, **options)


def durable(name: str, **options: Any) -> Any:
    return step(works, name=name, **options)


def messages(inline: Inline, *steps: Any, run_id: str = "r", **options: Any) -> list[str | None]:
    """The paths of the messages that are delivered until the run has nothing more to do."""
    inline.define("w", *steps, **options)
    inline.rival.run("w", {"x": 1}, run_id)
    return [one.path for one in inline.drain()]


def test_an_inline_step_follows_without_a_message_and_waits_for_the_next_one(inline: Inline) -> None:
    seen: list[dict[str, str]] = []

    def looks() -> None:
        seen.append({one.path: one.status for one in inline.rival.state("r").steps})

    steps = [durable("a"), inlined("b"), step(looks, name="c", **INLINE), durable("d")]
    assert messages(inline, *steps) == [None, "a", "d"]
    assert seen == [{"a": "completed", "b": "running"}]
    opened = {one.path: one.what for one in reversed(inline.rival.history("r")) if one.path}
    assert opened == {"a": "scheduled", "b": "claimed", "c": "claimed", "d": "scheduled"}
    assert inline.rival.result("r").results == {"a": "done", "b": "done", "c": None, "d": "done"}


def test_the_first_step_of_a_run_follows_its_start(inline: Inline) -> None:
    assert messages(inline, inlined("a"), durable("b")) == [None, "b"]


def test_functions_of_composites_lanes_and_flows_can_be_inline(inline: Inline) -> None:
    @flow("f", register=False)
    def talks(ctx: Any) -> str:
        return str(ctx.step(works, execution_mode="inline"))

    steps = [
        branch("big?", when=lambda: True, then=[inlined("then")], **INLINE),
        for_each("each", items=lambda: [1, 2, 3], do=[inlined("do")], concurrency=1, **INLINE),
        delay_step(0.0, name="nap"),
        inlined("after"),
        step(talks, name="talk", **INLINE),
    ]
    assert messages(inline, *steps) == [None, "nap"]
    assert inline.rival.result("r").result == "done"


def test_of_several_steps_that_open_at_once_one_runs_in_place(inline: Inline) -> None:
    lanes = [[durable("slow")], [inlined("quick"), inlined("more")], [inlined("last")]]
    assert messages(inline, durable("a"), parallel("both", lanes), inlined("end")) == [
        None,
        "a",
        "both/slow",
        "both/last",
    ]
    assert inline.rival.state("r").status == "completed"


@pytest.mark.parametrize("layer", ["workflow", "run", "fleet"])
def test_rules_make_steps_inline_and_take_it_back(inline: Inline, layer: str) -> None:
    inline.define(
        "w", durable("a"), durable("b"), inlined("c"), policies=[("b", INLINE)] if layer == "workflow" else []
    )
    if layer == "fleet":
        inline.rival.set_policy("b", INLINE)
        inline.rival.set_policy("c", {"execution_mode": "durable"})
        inline.keeper.run_once()
    rules = [("b", INLINE), ("c", {"execution_mode": "durable"})] if layer == "run" else None
    inline.rival.run("w", None, "r", policies=rules)
    assert [one.path for one in inline.drain()] == ([None, "a"] if layer == "workflow" else [None, "a", "c"])
    explained = {one.name: one.value for one in inline.rival.explain_policy("r", "b").fields}
    assert explained["execution_mode"] == "inline"


def test_a_retry_goes_through_the_timer(inline: Inline) -> None:
    attempts: list[int] = []

    def fails(ctx: Any) -> None:
        attempts.append(ctx.run.attempt)
        if len(attempts) == 1:
            raise ValueError("boom")

    steps = [durable("a"), step(fails, name="b", max_retries=1, base_delay=20, **INLINE), inlined("c")]
    assert messages(inline, *steps) == [None, "a"]
    assert (attempts, inline.rival.state("r").steps[1].status) == ([1], "waiting_retry")
    inline.time_passes(60)
    inline.keeper.run_once()
    # On SQLite also by its countdown.
    assert {one.path for one in inline.drain()} == {"b"}
    assert (attempts, inline.rival.state("r").status) == ([1, 2], "completed")


def test_a_worker_that_shuts_down_leaves_it_to_a_message(inline: Inline) -> None:
    inline.define("w", durable("a"), inlined("b"))
    inline.rival.run("w", None, "r")
    inline.coordinator.stopping = True
    for path in (None, "a"):
        [message] = inline.doorbell.take()
        assert message.path == path
        inline.deliver(message)
    [left] = inline.doorbell.take()
    assert (left.path, inline.rival.state("r").steps[1].status) == ("b", "pending")


def test_a_paused_run_leaves_it_to_a_message(inline: Inline) -> None:
    inline.define("w", step(lambda: inline.rival.pause("r"), name="a"), inlined("b"))
    inline.rival.run("w", None, "r")
    assert [one.path for one in inline.drain()][:2] == [None, "a"]
    assert inline.rival.state("r").steps[1].status == "pending"
    inline.rival.resume("r")
    assert [one.path for one in inline.drain()] == ["b"]


def test_a_limit_that_does_not_wait_is_possible(inline: Inline) -> None:
    limited = inlined("b", concurrency_limit=limit(1, on_full="skip"))
    assert messages(inline, durable("a"), limited, inlined("c")) == [None, "a"]
    assert inline.rival.result("r").result == "done"


def test_a_fleet_rule_leaves_an_external_step_external(inline: Inline) -> None:
    inline.define("w", step(works, name="ask", execution_mode="external"), policies=[(of_kind("step"), INLINE)])
    inline.rival.set_policy("ask", INLINE)
    inline.keeper.run_once()
    inline.rival.run("w", None, "r")
    inline.drain()
    [row] = inline.rival.state("r").steps
    assert (row.kind, row.status) == ("external", "waiting")


# -- ends that are committed together ---------------------------------------------------------------------------------


def statuses(inline: Inline) -> dict[str, str]:
    return {one.path: one.status for one in inline.rival.state("r").steps}


def entries_of(inline: Inline, path: str) -> list[str]:
    return [one.what for one in inline.rival.history("r") if one.path == path]


class Calls:
    """Counts the calls of each step, and does something in the first one of `where`."""

    def __init__(self, where: str = "", act: Callable[[], Any] = lambda: None) -> None:
        self.made: Counter[str] = Counter()
        self.where, self.act = where, act

    def inlined(self, name: str, **options: Any) -> Any:
        def work(ctx: Any) -> str:
            self.made[name] += 1
            if name == self.where and self.made[name] == 1:
                self.act()
            return f"{name}{self.made[name]}"

        return step(work, name=name, **INLINE, **options)

    def steps(self, names: str, **options: Any) -> list[Any]:
        return [self.inlined(name, **options) for name in names]


@pytest.fixture
def ended(inline: Inline, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many ends each commit has asked for that has several."""
    found: list[int] = []
    real = inline.store.finish_steps

    def finish_steps(ends: Any, **how: Any) -> Any:
        found.append(len(ends))
        return real(ends, **how)

    monkeypatch.setattr(inline.store, "finish_steps", finish_steps)
    return found


def test_at_most_ten_ends_are_one_commit(inline: Inline, ended: list[int]) -> None:
    names = "abcdefghijklmnopqrstuvw"
    calls = Calls()
    assert messages(inline, durable("first"), *calls.steps(names), durable("last")) == [None, "first", "last"]
    assert ended == [10, 10, 3]
    assert inline.rival.result("r").results == {
        "first": "done",
        **{name: f"{name}1" for name in names},
        "last": "done",
    }
    assert {tuple(entries_of(inline, name)) for name in names} == {("claimed", "completed")}


def test_the_first_and_the_last_step_of_a_run_and_those_of_items_are_committed_together(
    inline: Inline, ended: list[int]
) -> None:
    calls = Calls()
    each = for_each("each", items=lambda: [1, 2], do=calls.steps("xyz"), concurrency=1, **INLINE)
    assert messages(inline, *calls.steps("ab"), each, *calls.steps("yz")) == [None]
    assert ended == [2, 3, 3, 2]
    assert inline.rival.result("r").results["z"] == "z3"


def test_a_later_step_sees_the_results_and_the_state_of_those_before_it(inline: Inline) -> None:
    def writes(state: Any) -> int:
        state.seen = "b"
        return 7

    def reads(steps: Any, ctx: Any) -> Any:
        ctx.heartbeat(1)
        return [steps.b.result, steps.b.state, ctx.is_over(), ctx.run.attempt]

    steps = [durable("a"), step(writes, name="b", **INLINE), step(reads, name="c", **INLINE)]
    messages(inline, *steps)
    assert inline.rival.result("r").result == [7, {"seen": "b"}, False, 1]


def test_a_failure_is_committed_after_the_ends_before_it_and_is_not_called_twice(
    inline: Inline, ended: list[int]
) -> None:
    def fails() -> None:
        raise ValueError("boom")

    calls = Calls("d", fails)
    steps = [durable("a"), *calls.steps("bcd", max_retries=1, base_delay=20), durable("e")]
    assert messages(inline, *steps) == [None, "a"]
    assert ended == [2]
    assert statuses(inline) == {"a": "completed", "b": "completed", "c": "completed", "d": "waiting_retry"}
    inline.time_passes(60)
    inline.keeper.run_once()
    inline.drain()
    assert calls.made == {"b": 1, "c": 1, "d": 2}
    assert inline.rival.state("r").steps[3].attempts == 2
    assert inline.rival.state("r").status == "completed"


def test_a_final_failure_fails_the_run_with_its_error(inline: Inline) -> None:
    def fails() -> None:
        raise ValueError("boom")

    calls = Calls("c", fails)
    messages(inline, *calls.steps("abc"))
    result = inline.rival.result("r")
    assert (result.status, result.failed_step, (result.error or {})["message"]) == ("failed", "c", "boom")
    assert statuses(inline) == {"a": "completed", "b": "completed", "c": "failed"}


def test_a_run_that_is_paused_meanwhile_keeps_the_ends_of_all_that_have_run(inline: Inline) -> None:
    calls = Calls("c", lambda: inline.rival.pause("r"))
    inline.define("w", *calls.steps("abcd"), durable("e"))
    inline.rival.run("w", None, "r")
    inline.drain()
    assert statuses(inline) == {**dict.fromkeys("abcd", "completed"), "e": "pending"}
    inline.rival.resume("r")
    inline.drain()
    assert calls.made == dict.fromkeys("abcd", 1)
    assert inline.rival.result("r").results == {**{name: f"{name}1" for name in "abcd"}, "e": "done"}


def test_a_step_that_fails_in_a_run_that_is_paused_meanwhile_has_failed(inline: Inline) -> None:
    calls = Calls("c", lambda: inline.rival.pause("r"))

    def fails() -> None:
        calls.made["d"] = calls.made.get("d", 0) + 1
        raise StepError("no")

    failing = step(fails, name="d", execution_mode="inline", on_failure="skip")
    inline.define("w", *calls.steps("abc"), failing, durable("e"))
    inline.rival.run("w", None, "r")
    inline.drain()
    assert statuses(inline) == {**dict.fromkeys("abc", "completed"), "d": "skipped", "e": "pending"}
    inline.rival.resume("r")
    inline.drain()
    assert calls.made == dict.fromkeys("abcd", 1)
    assert inline.rival.result("r").status == "completed"


def test_a_run_that_is_cancelled_meanwhile_ends_no_step(inline: Inline) -> None:
    calls = Calls("c", lambda: inline.rival.cancel("r"))
    messages(inline, *calls.steps("abcd"))
    assert inline.rival.state("r").status == "cancelled"
    assert statuses(inline) == {"a": "cancelled"}
    assert entries_of(inline, "a")[-1] == "late_result_refused"


def test_a_takeover_meanwhile_makes_all_of_them_run_again(inline: Inline) -> None:
    def taken_over() -> None:
        [running] = inline.store.running_on(inline.process.executor.id)
        inline.coordinator.transitions.take_over(running)

    calls = Calls("c", taken_over)
    assert messages(inline, *calls.steps("abcd")) == [None, "a"]
    assert calls.made == {"a": 2, "b": 2, "c": 2, "d": 2}
    assert inline.rival.result("r").results == {name: f"{name}2" for name in "abcd"}
    assert [one.lost for one in inline.rival.state("r").steps] == [1, 0, 0, 0]


def test_a_rewind_meanwhile_makes_them_run_again(inline: Inline) -> None:
    calls = Calls("d", lambda: inline.rival.rewind("r", "a"))
    messages(inline, durable("a"), *calls.steps("bcde"))
    assert calls.made == {"b": 2, "c": 2, "d": 2, "e": 2}
    assert inline.rival.result("r").results == {"a": "done", "b": "b2", "c": "c2", "d": "d2", "e": "e2"}


def test_after_a_lost_answer_nothing_runs_twice(inline: Inline, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rival_workers.runtime.attempt.outage.FIRST_PAUSE", 0.001)
    calls = Calls()
    real = inline.store.finish_steps

    def unheard(ends: Any, **how: Any) -> Any:
        monkeypatch.setattr(inline.store, "finish_steps", real)
        real(ends, **how)
        raise DatabaseUnavailable("the answer was lost")

    monkeypatch.setattr(inline.store, "finish_steps", unheard)
    messages(inline, *calls.steps("abc"), durable("last"))
    # The message of the last step was not published.
    inline.time_passes(60)
    inline.keeper.run_once()
    inline.drain()
    assert (calls.made, inline.rival.state("r").status) == ({"a": 1, "b": 1, "c": 1}, "completed")


def test_what_the_database_refuses_together_is_committed_alone(inline: Inline, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(ends: Any, **how: Any) -> Any:
        raise DatabaseRefused("a number is out of range", "22003")

    monkeypatch.setattr(inline.store, "finish_steps", refuses)
    calls = Calls()
    messages(inline, *calls.steps("abc"))
    assert inline.rival.result("r").status == "completed"
    assert calls.made == {"a": 2, "b": 2, "c": 2}


def test_no_end_waits_for_a_step_that_takes_long(
    inline: Inline, ended: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [0.0]
    monkeypatch.setattr(inline.coordinator.limits, "clock", lambda: clock[0])

    def takes_long() -> None:
        clock[0] += 100

    calls = Calls("c", takes_long)
    messages(inline, *calls.steps("abcd"))
    # `c` has taken too long for `d` to be committed with it.
    assert ended == [3]
    messages(inline, *Calls().steps("abcd"), run_id="r2")
    assert ended == [3, 2]


#: What needs a row of its own while it runs, or is reported at once.
ALONE: dict[str, dict[str, Any]] = {
    "timeout": {"timeout": 60},
    "heartbeat": {"heartbeat": 60},
    "deadline": {"deadline": 60},
    "circuit_breaker": {"circuit_breaker": breaker("b")},
    "concurrency_limit": {"concurrency_limit": limit(1, on_full="skip")},
}


@pytest.mark.parametrize("option", ALONE)
def test_what_can_be_ended_or_limited_by_itself_is_committed_by_itself(
    inline: Inline, ended: list[int], option: str
) -> None:
    calls = Calls()
    alone = calls.inlined("c", **ALONE[option])
    messages(inline, *calls.steps("ab"), alone, *calls.steps("de"))
    assert ended == [2, 2]
    assert inline.rival.state("r").status == "completed"


def test_with_many_runs_in_hand_each_end_is_left_to_their_group_commits(
    inline: Inline, ended: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inline_ends, "FEW", 0)
    messages(inline, *Calls().steps("abc"))
    assert ended == ([] if inline.store.database.is_postgres else [3])
    assert inline.rival.state("r").status == "completed"


def test_hooks_and_signals_see_each_end_after_its_commit(inline: Inline, ended: list[int]) -> None:
    seen: list[tuple[str, str]] = []

    def after(event: Any) -> None:
        seen.append((event.step, {one.path: one.status for one in inline.rival.state("r").steps}[event.step]))

    messages(inline, *Calls().steps("ab"), hooks={"on_checkpoint": after})
    assert (seen, ended) == ([("a", "completed"), ("b", "completed")], [])


WAITS: dict[str, dict[str, Any]] = {
    "delay": {"delay": 5},
    "a queue of its own (give the workflow the queue)": {"queue": "gpu"},
    'a limit that waits (give it on_full="skip" or "fail")': {"concurrency_limit": 5},
    'a limit that waits (give it on_full="skip" or "fail") ': {"rate_limit": rate(5, per=1)},
    "idempotency_key": {"idempotency_key": "k:{input.order}"},
    'a circuit_breaker with on_open="wait"': {"circuit_breaker": breaker("b", on_open="wait")},
}


@pytest.mark.parametrize("what", WAITS)
def test_what_would_make_it_wait_is_refused_with_its_name(what: str) -> None:
    wrong = (
        "workflow 'w': steps[0]: execution_mode=\"inline\" runs the step right after the one before it, in the same "
        f"process, so it cannot have {what.strip()} (…)"
    )
    with pytest.raises(DefinitionError, match=whole(wrong)):
        define_workflow("w", [step(works, **INLINE, **WAITS[what])])
    with pytest.raises(DefinitionError, match=whole(wrong)):
        define_workflow("w", [step(works, **WAITS[what])], policies=[("works", INLINE)])
    with pytest.raises(DefinitionError, match=whole(f"…: {wrong}")):
        create_workflow("w").step(works, **INLINE, **WAITS[what]).build()


def test_a_queue_of_the_whole_workflow_is_possible() -> None:
    assert define_workflow("w", [inlined("a")], queue="gpu").policies.at("a").is_inline


def test_a_rule_that_contradicts_itself_is_refused(inline: Inline) -> None:
    with pytest.raises(
        InvalidArgument,
        match=whole(
            'Invalid argument rule: the rule: execution_mode="inline" runs the step right after the one before '
            "it, in the same process, so it cannot have delay."
        ),
    ):
        inline.rival.set_policy("a", {**INLINE, "delay": 5})
