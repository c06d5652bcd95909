"""An operator's verbs: a run goes on where it has stopped, from an earlier step, or stands still; a late result of
before is refused all the same.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from sqlalchemy import select

from rival_client.broker.message import StepMessage
from rival_client.db.locks import share_run
from rival_client.db.run_tables import runs, steps
from rival_client.errors import NotPossible, RunNotFound
from rival_client.model.payload import Json
from rival_client.model.records import RunState
from rival_workers import StepError, branch, for_each, loop, parallel, step, wait_event_step, workflow
from rival_workers.definition.define import define_workflow
from rival_workers.engine.decisions import End
from rival_workers.engine.effects import Advance, EndRun
from rival_workers.store.claim_records import Claim
from tests.support.effort import long_but_first
from tests.support.inline import Clock, Inline
from tests.support.locks import until_blocked
from tests.support.output import whole

Make = Callable[..., Inline]
LATE = End("completed", Json('"late"'))


@pytest.fixture(params=long_but_first("postgres", "sqlite by messages", "sqlite"))
def make(request: pytest.FixtureRequest) -> Iterator[Make]:
    on_postgres = request.param == "postgres"
    url = request.getfixturevalue("postgres_url" if on_postgres else "file_url")
    budget = 0.0 if request.param == "sqlite by messages" else 1.0
    opened: list[Inline] = []

    def open_(**settings: Any) -> Inline:
        clock = None if on_postgres else Clock()
        opened.append(Inline(url, clock=clock, continuation_budget=budget, **settings))
        return opened[-1]

    yield open_
    for inline in opened:
        inline.close()


class World:
    """What the steps have done, and which of them are out of order."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.broken: set[str] = set()

    def step(self, name: str, **options: Any) -> Any:
        def act(ctx: Any) -> str:
            self.done.append(ctx.run.step)
            if self.broken & {name, ctx.run.step}:
                raise StepError(f"{name} is broken", behavior="stop")
            return name

        return step(act, name=name, **options)

    def take(self) -> list[str]:
        done, self.done = self.done, []
        return done


@pytest.fixture
def world() -> World:
    return World()


def settled(inline: Inline, run_id: str) -> RunState:
    inline.drain()
    return inline.rival.state(run_id)


def start(inline: Inline, *steps: Any, input: Any = None, **options: Any) -> str:
    inline.define("w", *steps, **options)
    run_id = inline.rival.run("w", input).run_id
    inline.drain()
    return run_id


def status_of(state: RunState) -> dict[str, str]:
    return {one.path: one.status for one in state.steps}


# -- retry ------------------------------------------------------------------------------------------------


def test_a_retried_run_goes_on_at_the_step_that_failed(make: Make, world: World) -> None:
    inline = make()
    world.broken = {"b"}
    run_id = start(inline, world.step("a"), world.step("b", max_attempts=2), world.step("c"))
    assert inline.rival.state(run_id).status == "failed"
    world.broken.clear()
    world.take()
    reopened = inline.rival.retry(run_id, by="ann")
    assert reopened.opened == ("b",)
    during = inline.rival.state(run_id)
    assert (during.status, during.error, during.failed_step) == ("running", None, None)
    state = settled(inline, run_id)
    assert (state.status, state.result, world.done) == ("completed", "c", ["b", "c"])
    assert {one.path: one.attempts for one in state.steps} == {"a": 1, "b": 1, "c": 1}
    entry = next(one for one in inline.rival.history(run_id) if one.what == "retry_run")
    assert (entry.by, entry.detail["opened"]) == ("ann", ["b"])


def test_a_run_can_be_retried_as_often_as_it_fails(make: Make, world: World) -> None:
    inline = make()
    world.broken = {"b"}
    run_id = start(inline, world.step("a"), world.step("b"), world.step("c"))
    for _ in range(3):
        inline.rival.retry(run_id)
        assert settled(inline, run_id).status == "failed"
    world.broken = {"c"}
    inline.rival.retry(run_id)
    assert settled(inline, run_id).failed_step == "c"
    world.broken.clear()
    inline.rival.retry(run_id)
    state = settled(inline, run_id)
    assert state.status == "completed"
    assert [one.outcome for one in state.attempts] == ["failed"] * 5


def test_handlers_of_the_failure_are_deleted_and_run_again_for_the_next(make: Make, world: World) -> None:
    inline = make()

    def help_it() -> None:
        world.done.append("help")

    def help_all() -> None:
        world.done.append("help all")

    world.broken = {"b"}
    run_id = start(inline, world.step("b", on_error=help_it), on_error=help_all)
    assert world.take() == ["b", "help", "help all"]
    inline.rival.retry(run_id)
    assert status_of(inline.rival.state(run_id)) == {"b": "pending"}
    inline.drain()
    assert world.take() == ["b", "help", "help all"]
    world.broken.clear()
    inline.rival.retry(run_id)
    assert status_of(settled(inline, run_id)) == {"b": "completed"}


def test_a_cancelled_run_goes_on_where_it_was(make: Make, world: World) -> None:
    inline = make()
    inline.define("w", world.step("a"), wait_event_step("paid", name="paid"), world.step("b"))
    run_id = inline.rival.run("w").run_id
    inline.drain()
    inline.rival.cancel(run_id)
    inline.rival.send_event("paid", {"n": 1})
    inline.drain()
    inline.rival.retry(run_id)
    assert settled(inline, run_id).status == "completed"
    assert world.done == ["a", "b"]


def test_a_run_cancelled_before_it_began_is_begun(make: Make, world: World) -> None:
    inline = make()
    inline.define("w", world.step("a"), world.step("b"))
    run_id = inline.rival.run("w").run_id
    inline.rival.cancel(run_id)
    inline.drain()
    inline.rival.retry(run_id, dry_run=True)
    assert inline.rival.state(run_id).status == "cancelled"
    inline.rival.retry(run_id)
    assert settled(inline, run_id).status == "completed"
    assert world.done == ["a", "b"]


@pytest.mark.parametrize("on_failure", ["cancel", "wait"])
def test_all_lanes_of_a_parallel_go_on_and_it_is_joined(make: Make, world: World, on_failure: Any) -> None:
    inline = make()
    world.broken = {"y", "v"}
    ways = [[world.step("x"), world.step("y")], [world.step("u"), world.step("v")], world.step("t")]
    run_id = start(inline, parallel("p", ways, on_failure=on_failure), world.step("z"))
    assert inline.rival.state(run_id).status == "failed"
    before = world.take()
    world.broken.clear()
    inline.rival.retry(run_id)
    state = settled(inline, run_id)
    assert (state.status, state.result) == ("completed", "z")
    rows = {one.path: one for one in state.steps}
    assert rows["p"].result == {"y": "y", "v": "v", "t": "t"}
    assert (rows["p"].remaining, rows["p"].error) == (0, None)
    assert world.done.count("z") == 1
    assert sorted({*before, *world.done}) == ["p/t", "p/u", "p/v", "p/x", "p/y", "z"]


@pytest.mark.parametrize("on_failure", ["cancel", "wait"])
@pytest.mark.parametrize("concurrency", [1, 2, 8])
def test_all_items_of_a_for_each_are_done_after_a_retry(
    make: Make, world: World, on_failure: Any, concurrency: int
) -> None:
    inline = make()
    world.broken = {"lines[1]/pack", "lines[2]/pick"}
    lines = for_each(
        "lines",
        items=lambda: list("abcde"),
        do=[world.step("pick"), world.step("pack")],
        concurrency=concurrency,
        on_failure=on_failure,
    )
    run_id = start(inline, lines, world.step("z"))
    failed = inline.rival.state(run_id)
    assert failed.status == "failed"
    world.broken.clear()
    world.take()
    inline.rival.retry(run_id)
    state = settled(inline, run_id)
    assert (state.status, state.result) == ("completed", "z")
    rows = {one.path: one for one in state.steps}
    assert rows["lines"].result == ["pack"] * 5
    assert (rows["lines"].total, rows["lines"].opened, rows["lines"].remaining) == (5, 5, 0)
    assert {one.status for one in state.steps} == {"completed"}
    assert not {one.path for one in failed.steps if one.status == "completed"} & set(world.done)
    assert len(set(world.done)) == len(world.done)


def test_what_has_failed_softly_stays_as_it_is(make: Make, world: World) -> None:
    inline = make()

    def soft() -> None:
        world.done.append("soft")
        raise StepError("never mind", behavior="continue")

    world.broken = {"b"}
    run_id = start(inline, step(soft), world.step("b"))
    world.take()
    world.broken.clear()
    inline.rival.retry(run_id)
    assert status_of(settled(inline, run_id)) == {"soft": "failed", "b": "completed"}
    assert world.done == ["b"]


def test_a_failure_deep_within_is_retried_there(make: Make, world: World) -> None:
    inline = make()
    inner = define_workflow("inner", [world.step("i"), world.step("j")])
    deep = for_each("each", items=lambda: [1, 2], do=[branch("if", when=lambda: True, then=[workflow(inner)])])
    turns = loop("turns", do=[deep], max_iterations=2)
    world.broken = {"turns[1]/each[1]/if/inner/j"}
    run_id = start(inline, turns, world.step("z"))
    assert inline.rival.state(run_id).failed_step == "turns[1]/each[1]/if/inner/j"
    world.take()
    world.broken.clear()
    inline.rival.retry(run_id)
    state = settled(inline, run_id)
    assert world.done == ["turns[1]/each[1]/if/inner/j", "z"]
    assert {one.status for one in state.steps} == {"completed"}


@pytest.mark.parametrize("question", ["when", "items", "until", "while"])
def test_a_condition_that_failed_is_called_again(make: Make, world: World, question: str) -> None:
    inline = make()
    broken = [True]

    def ask() -> Any:
        if broken[0]:
            raise ValueError("no idea")
        return [1] if question == "items" else question in ("when", "until") or world.done.count("c[0]/x") == 0

    x = world.step("x")
    asked = {
        "when": lambda: branch("c", when=ask, then=[x]),
        "items": lambda: for_each("c", items=ask, do=[x]),
        "until": lambda: loop("c", do=[x], until=ask, max_iterations=3),
        "while": lambda: loop("c", do=[x], while_=ask, max_iterations=3),
    }[question]()
    run_id = start(inline, asked, world.step("z"))
    assert inline.rival.state(run_id).status == "failed"
    broken[0] = False
    inline.rival.retry(run_id)
    state = settled(inline, run_id)
    assert state.status == "completed"
    assert len(world.done) == 2


def test_only_what_has_stopped_can_be_retried(make: Make, world: World) -> None:
    inline = make()
    run_id = start(inline, world.step("a"))
    with pytest.raises(
        NotPossible,
        match=whole(
            "Cannot retry run '…': it is completed: rewind it to the step from which it should run again. "
            "Nothing was changed."
        ),
    ):
        inline.rival.retry(run_id)
    with pytest.raises(RunNotFound):
        inline.rival.retry("nobody")


def test_a_preview_changes_nothing(make: Make, world: World) -> None:
    inline = make()
    world.broken = {"b"}
    run_id = start(inline, world.step("a"), world.step("b"))
    before = inline.rival.state(run_id), inline.rival.history(run_id)
    assert inline.rival.retry(run_id, dry_run=True).opened == ("b",)
    assert inline.rival.rewind(run_id, "a", dry_run=True).runs_again == ("a", "b")
    assert (inline.rival.state(run_id), inline.rival.history(run_id)) == before
    assert inline.doorbell.messages == []


def test_a_handler_of_a_soft_failure_that_was_cancelled_runs_again(make: Make, world: World) -> None:
    inline = make()

    def soft() -> None:
        world.done.append("soft")
        raise StepError("never mind", behavior="continue")

    def helps(ctx: Any) -> None:
        world.done.append("helps")
        if world.done.count("helps") == 1:
            inline.rival.cancel(ctx.run.run_id)

    run_id = start(inline, step(soft, on_error=helps), world.step("b"))
    assert inline.rival.state(run_id).status == "cancelled"
    inline.rival.retry(run_id)
    state = settled(inline, run_id)
    assert status_of(state) == {"soft": "failed", "soft!on_error": "completed", "b": "completed"}
    assert world.done == ["soft", "helps", "helps", "b"]


def test_a_failure_that_a_nested_workflow_keeps_to_itself_stays_there(make: Make, world: World) -> None:
    inline = make()
    inner = define_workflow("inner", [world.step("i")])
    world.broken = {"i", "z"}
    run_id = start(inline, workflow(inner, propagate_failure=False), world.step("z"))
    world.broken.clear()
    world.take()
    inline.rival.retry(run_id)
    assert settled(inline, run_id).status == "completed"
    assert world.done == ["z"]


def test_items_whose_failure_does_not_matter_are_left_alone_by_a_retry(make: Make, world: World) -> None:
    inline = make()
    world.broken = {"lines[1]/x"}
    paid = wait_event_step("paid", name="paid")
    lines = for_each("lines", items=lambda: [1, 2, 3], do=[world.step("x"), paid], concurrency=3, on_failure="continue")
    run_id = start(inline, lines, world.step("z"))
    inline.rival.cancel(run_id)
    world.take()
    inline.rival.retry(run_id)
    inline.drain()
    inline.rival.send_event("paid")
    inline.rival.send_event("paid")
    state = settled(inline, run_id)
    assert (state.status, world.done) == ("completed", ["z"])
    assert status_of(state)["lines[1]"] == "failed"


def test_of_two_retries_at_once_one_is_refused(make: Make, world: World) -> None:
    inline = make()
    world.broken = {"b"}
    run_id = start(inline, world.step("a"), world.step("b"))
    world.broken.clear()
    world.take()

    def again(_: int) -> bool:
        try:
            inline.rival.retry(run_id)
        except NotPossible:
            return False
        return True

    with ThreadPoolExecutor(4) as threads:
        assert sorted(threads.map(again, range(4))) == [False, False, False, True]
    assert settled(inline, run_id).status == "completed"
    assert world.done == ["b"]


# -- late results -----------------------------------------------------------------------------------------


def test_a_late_result_of_before_a_rewind_is_refused(make: Make, world: World) -> None:
    inline = make()
    gate: dict[str, Any] = {}

    def b(ctx: Any) -> str:
        seen = inline.store.token_of(ctx.run.run_id, "b")
        assert seen is not None
        if not gate:
            gate["old"] = Claim(ctx.run.run_id, "b", seen[1])
            inline.rival.rewind(ctx.run.run_id, "a")
            inline.drain()
            assert inline.rival.result(ctx.run.run_id).result == "c"
            return "late"
        # The step is running again at this very moment, so only the token distinguishes the two.
        late = inline.store.finish_step(gate["old"], LATE, Advance((EndRun("completed"),)), claim_for=None)
        assert (seen[0], late) == ("running", None)
        return "in time"

    run_id = start(inline, world.step("a"), step(b), world.step("c"))
    state = inline.rival.state(run_id)
    assert {one.path: one.result for one in state.steps} == {"a": "a", "b": "in time", "c": "c"}
    assert world.done == ["a", "a", "c"]
    assert "late_result_refused" in [one.what for one in inline.rival.history(run_id)]


def test_an_old_message_does_not_start_the_new_step(make: Make, world: World) -> None:
    inline = make(ring_grace=10)
    inline.define("w", world.step("a"), parallel("p", [world.step("x"), world.step("y")]))
    run_id = inline.rival.run("w").run_id
    old: list[StepMessage] = []
    while messages := inline.doorbell.take():
        for message in messages:
            old.append(message)
            inline.deliver(message)
    world.take()
    inline.rival.rewind(run_id, "a")
    for message in old:
        inline.deliver(message)
    assert world.done == []
    assert settled(inline, run_id).status == "completed"
    assert world.done == ["a", "p/x", "p/y"]


# -- rewind -----------------------------------------------------------------------------------------------


def test_a_completed_run_is_run_again_from_a_step_on(make: Make, world: World) -> None:
    inline = make()
    run_id = start(inline, world.step("a"), world.step("b"), world.step("c"))
    world.take()
    reopened = inline.rival.rewind(run_id, "b", by="ann")
    assert (reopened.opened, reopened.runs_again) == (("b",), ("b", "c"))
    assert status_of(inline.rival.state(run_id)) == {"a": "completed", "b": "pending"}
    state = settled(inline, run_id)
    assert (state.status, state.result, world.done) == ("completed", "c", ["b", "c"])
    entry = next(one for one in inline.rival.history(run_id) if one.what == "rewind_run")
    assert (entry.path, entry.by, entry.detail["deleted"]) == ("b", "ann", ["b", "c"])


def everything(world: World) -> list[Any]:
    inner = define_workflow("inner", [world.step("i"), world.step("j")])
    each = for_each("each", items=lambda: [1, 2, 3], do=[world.step("e"), world.step("f")], concurrency=2)
    return [
        world.step("a"),
        branch("if", when=lambda: True, then=[world.step("b"), world.step("c")]),
        parallel("par", [[world.step("x"), world.step("y")], [world.step("u"), each]]),
        loop(
            "turns",
            do=[world.step("t")],
            until=lambda: world.done.count("turns[0]/t") < 9 and iteration_of(world) >= 2,
            max_iterations=9,
        ),
        workflow(inner),
        world.step("z"),
    ]


def iteration_of(world: World) -> int:
    last = next((one for one in reversed(world.done) if one.startswith("turns[")), "turns[0]/t")
    return int(last[6])


CASES = {
    "a": "a if/b if/c par/x par/y par/u each turns inner/i inner/j z",
    "if": "if/b if/c par/x par/y par/u each turns inner/i inner/j z",
    "if/c": "if/c par/x par/y par/u each turns inner/i inner/j z",
    "par": "par/x par/y par/u each turns inner/i inner/j z",
    "par/y": "par/y turns inner/i inner/j z",
    "par/u": "par/u each turns inner/i inner/j z",
    "par/each": "each turns inner/i inner/j z",
    "par/each[1]/f": "par/each[1]/f turns inner/i inner/j z",
    "turns": "turns inner/i inner/j z",
    "turns[1]/t": "turns[1]/t turns[2]/t inner/i inner/j z",
    "inner": "inner/i inner/j z",
    "inner/j": "inner/j z",
    "z": "z",
}
EACH = [f"par/each[{index}]/{name}" for index in range(3) for name in "ef"]
TURNS = [f"turns[{index}]/t" for index in range(3)]


@pytest.mark.slow
@pytest.mark.parametrize("target", CASES)
def test_a_rewind_undoes_what_came_after_and_nothing_else(make: Make, world: World, target: str) -> None:
    inline = make()
    run_id = start(inline, *everything(world))
    first = inline.rival.state(run_id)
    assert first.status == "completed"
    world.take()
    inline.rival.rewind(run_id, target)
    state = settled(inline, run_id)
    names = [name for name in CASES[target].split() if name not in ("each", "turns")]
    wanted = (
        names
        + (EACH if " each " in f" {CASES[target]} " else [])
        + (TURNS if " turns " in f" {CASES[target]} " else [])
    )
    assert sorted(world.done) == sorted(wanted)
    assert (state.status, state.result) == ("completed", "z")
    outcome = [
        {one.path: (one.status, one.result, one.remaining, one.opened) for one in s.steps} for s in (first, state)
    ]
    assert outcome[0] == outcome[1]


@pytest.mark.slow
@pytest.mark.parametrize("broken", ["if/c", "par/y", "par/each[1]/f", "turns[1]/t", "inner/j", "z"])
@pytest.mark.parametrize("target", ["if/b", "retry"])
def test_a_failed_run_can_be_rewound_or_retried_wherever_it_failed(
    make: Make, world: World, broken: str, target: str
) -> None:
    inline = make()
    world.broken = {broken}
    run_id = start(inline, *everything(world))
    assert inline.rival.state(run_id).failed_step == broken
    world.broken.clear()
    if target == "retry":
        inline.rival.retry(run_id)
    else:
        inline.rival.rewind(run_id, target)
    state = settled(inline, run_id)
    assert (state.status, state.result) == ("completed", "z")
    assert {one.status for one in state.steps} == {"completed"}


def test_a_wrong_step_is_refused_with_the_known_ones(make: Make, world: World) -> None:
    inline = make()
    run_id = start(inline, world.step("a"), branch("if", when=lambda: True, then=[world.step("b")]))
    known = "has begun (known: a, if, if/b)"
    for wrong, problem in (
        ("c", f"no step 'c' {known}"),
        ("if!when", "'if!when' is not a step: rewind to 'if' instead"),
        ("!on_error", "'!on_error' is not a step: rewind to the step itself instead"),
        ("if/nobody", f"no step 'if/nobody' {known}"),
        ("a[3]", f"no step 'a[3]' {known}"),
    ):
        with pytest.raises(NotPossible, match=whole(f"Cannot rewind run '{run_id}': {problem}. Nothing was changed.")):
            inline.rival.rewind(run_id, wrong)


def test_a_wait_that_is_rewound_waits_for_another_event(make: Make, world: World) -> None:
    inline = make()
    run_id = start(inline, wait_event_step("paid", name="paid"), world.step("b"))
    inline.rival.send_event("paid", {"n": 1})
    assert settled(inline, run_id).status == "completed"
    inline.rival.rewind(run_id, "paid")
    assert settled(inline, run_id).status == "suspended"
    inline.rival.send_event("paid", {"n": 2})
    state = settled(inline, run_id)
    assert state.status == "completed"
    assert {one.path: one.result for one in state.steps} == {"paid": {"n": 2}, "b": "b"}


# -- pause ------------------------------------------------------------------------------------------------


def test_a_paused_run_starts_nothing_until_it_is_resumed(make: Make, world: World) -> None:
    inline = make()
    inline.define("w", world.step("a"), world.step("b"))
    run_id = inline.rival.run("w").run_id
    assert inline.rival.pause(run_id, by="ann")
    assert not inline.rival.pause(run_id)
    inline.drain()
    assert (world.done, inline.rival.state(run_id).is_paused) == ([], True)
    assert inline.rival.resume(run_id, by="bob")
    assert not inline.rival.resume(run_id)
    assert settled(inline, run_id).status == "completed"
    assert world.done == ["a", "b"]
    recorded = [(one.what, one.by) for one in inline.rival.history(run_id) if one.what in ("paused", "resumed")]
    assert recorded == [("paused", "ann"), ("resumed", "bob")]


def test_what_runs_when_a_run_is_paused_ends_and_nothing_follows(make: Make, world: World) -> None:
    inline = make()

    def pauses(ctx: Any) -> str:
        inline.rival.pause(ctx.run.run_id)
        return "done"

    inline.define("w", step(pauses), parallel("p", [world.step("x"), world.step("y")]), world.step("z"))
    run_id = inline.rival.run("w").run_id
    state = settled(inline, run_id)
    assert status_of(state) == {"pauses": "completed", "p": "waiting", "p/x": "pending", "p/y": "pending"}
    duplicate = StepMessage(run_id, "p/x", 0, "w", state.version)
    inline.deliver(duplicate)
    assert world.done == []
    inline.rival.resume(run_id)
    assert settled(inline, run_id).status == "completed"
    inline.deliver(duplicate)
    assert sorted(world.done) == ["p/x", "p/y", "z"]


def test_a_retry_that_falls_due_during_a_pause_is_made_after_it(make: Make) -> None:
    inline, calls = make(), []

    def flaky() -> int:
        calls.append(1)
        if len(calls) == 1:
            raise StepError("not yet", behavior="retry", max_attempts=3, backoff="none")
        return len(calls)

    def pausing(ctx: Any) -> None:
        inline.rival.pause(ctx.run.run_id)

    run_id = start(inline, parallel("p", [step(pausing), step(flaky, max_attempts=3)]))
    if not calls:
        inline.rival.resume(run_id)
        inline.deliver(inline.doorbell.take()[0])
        inline.rival.pause(run_id)
    inline.drain()
    assert len(calls) == 1
    inline.rival.resume(run_id)
    assert settled(inline, run_id).status == "completed"
    assert len(calls) == 2


def test_a_paused_run_can_be_cancelled_and_an_ended_one_is_not_paused(make: Make, world: World) -> None:
    inline = make()
    inline.define("w", world.step("a"))
    run_id = inline.rival.run("w").run_id
    inline.rival.pause(run_id)
    assert inline.rival.cancel(run_id)
    assert not inline.rival.state(run_id).is_paused
    assert not inline.rival.resume(run_id)
    assert not inline.rival.pause(run_id)
    inline.rival.retry(run_id)
    assert settled(inline, run_id).status == "completed"
    with pytest.raises(RunNotFound):
        inline.rival.pause("nobody")


# -- skip, set_result -------------------------------------------------------------------------------------


def test_a_step_that_waits_is_skipped_and_the_run_goes_on(make: Make, world: World) -> None:
    inline = make()
    run_id = start(inline, wait_event_step("paid", name="paid"), world.step("b"))
    inline.rival.skip(run_id, "paid", reason="paid in cash", by="ann")
    state = settled(inline, run_id)
    assert status_of(state) == {"paid": "skipped", "b": "completed"}
    entry = next(one for one in inline.rival.history(run_id) if one.what == "skip")
    assert (entry.path, entry.by) == ("paid", "ann")
    assert entry.detail == {"reason": "paid in cash", "was": "waiting", "result": None}
    inline.rival.send_event("paid")
    inline.drain()
    assert inline.rival.events()[0].status == "kept"


def test_the_step_that_failed_a_run_gets_its_result_by_hand(make: Make, world: World) -> None:
    inline = make()
    world.broken = {"p/x"}

    def after(steps: Any) -> Any:
        return steps.p.result

    run_id = start(inline, parallel("p", [world.step("x"), world.step("y")], on_failure="cancel"), step(after))
    assert inline.rival.state(run_id).status == "failed"
    inline.rival.set_result(run_id, "p/x", {"n": 7}, reason="done by hand", by="ann")
    state = settled(inline, run_id)
    assert (state.status, state.result) == ("completed", {"x": {"n": 7}, "y": "y"})


def test_a_result_that_comes_after_a_skip_is_refused(make: Make, world: World) -> None:
    inline = make()

    def stuck(ctx: Any) -> str:
        inline.rival.skip(ctx.run.run_id, "stuck", reason="it hangs")
        return "late"

    run_id = start(inline, step(stuck), world.step("b"))
    state = settled(inline, run_id)
    assert status_of(state) == {"stuck": "skipped", "b": "completed"}
    assert {one.path: one.result for one in state.steps} == {"stuck": None, "b": "b"}
    assert "late_result_refused" in [one.what for one in inline.rival.history(run_id)]


def test_only_an_open_step_can_be_skipped(make: Make, world: World) -> None:
    inline = make()
    run_id = start(inline, world.step("a"), parallel("p", [wait_event_step("paid", name="paid"), world.step("b")]))
    with pytest.raises(
        NotPossible,
        match=whole(
            "Cannot skip run '…': step 'a' is completed (open steps: p/paid): rewind the run to 'a' to run it "
            "again. Nothing was changed."
        ),
    ):
        inline.rival.skip(run_id, "a", reason="a test")
    with pytest.raises(
        NotPossible,
        match=whole(
            "Cannot skip run '…': 'p' is a parallel, and ends only with its steps (open steps: p/paid): skip "
            "each of them, or cancel the run. Nothing was changed."
        ),
    ):
        inline.rival.skip(run_id, "p", reason="a test")
    with pytest.raises(
        NotPossible,
        match=whole(
            "Cannot set_result run '…': unknown step 'x' (open steps: p/paid): name an open step. Nothing was changed."
        ),
    ):
        inline.rival.set_result(run_id, "x", 1, reason="a test")


@pytest.mark.parametrize("verb", ["rewind", "set_result"])
def test_an_operator_and_another_who_has_waited_for_a_steps_end_do_not_wait_for_one_another(
    postgres_url: str, verb: str
) -> None:
    """The other has the shared lock of the run and the ended step's, and goes on to the run's row."""
    inline = Inline(postgres_url)
    inline.define("w", step(lambda: 1, name="a"), wait_event_step("go", name="b"))
    inline.rival.run("w", run_id="r")
    inline.drain()
    inline.rival.cancel("r")
    act = {
        "rewind": lambda: inline.rival.rewind("r", "a"),
        "set_result": lambda: inline.rival.set_result("r", "b", 1, reason="enough"),
    }
    with inline.store.database.transaction() as connection:
        share_run(connection, "r")
        ended = select(steps.c.path).where(steps.c.run_id == "r", steps.c.path == "b")
        assert connection.scalar(ended.with_for_update()) == "b"
        acting = threading.Thread(target=act[verb])
        acting.start()
        until_blocked(inline.store.database)
        connection.execute(select(runs.c.id).where(runs.c.id == "r").with_for_update(nowait=True))
    acting.join()
    inline.drain()
    assert inline.rival.state("r").status == {"rewind": "suspended", "set_result": "completed"}[verb]
    inline.close()
