"""Inline steps of a flow: those that follow each other are committed together, before anything else that the flow does.
If the process dies before that commit, they run again.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from rival_client.errors import DatabaseRefused, DatabaseUnavailable
from rival_workers import StepError, StepFailed, step
from rival_workers.runtime.attempt import inline_ends
from rival_workers.runtime.flow.stop_signals import Killed
from tests.support.effort import examples
from tests.support.flows import define, finish, rows, run
from tests.support.inline import Clock, Inline


@pytest.fixture(params=["sqlite", "postgres"])
def inline(request: pytest.FixtureRequest) -> Iterator[Inline]:
    url = request.getfixturevalue("file_url" if request.param == "sqlite" else "postgres_url")
    opened = Inline(url, clock=Clock() if request.param == "sqlite" else None)
    yield opened
    opened.close()


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine is slow."""
    monkeypatch.setattr(inline_ends, "WITHIN", 60.0)


class Work:
    """Inline steps that count their calls and see what is committed."""

    def __init__(self, inline: Inline, run_id: str = "r") -> None:
        self.inline, self.run_id = inline, run_id
        self.calls: Counter[str] = Counter()
        self.seen: dict[str, set[str]] = {}

    def do(self, name: str, ends: Callable[[], Any] = lambda: None, **options: Any) -> Any:
        def function() -> Any:
            self.calls[name] += 1
            self.seen[name] = self.committed
            return ends() or name

        return step(function, name=name, execution_mode="inline", **options)

    def look(self) -> str:
        """A durable step that sees what is committed when it runs."""
        self.seen["look"] = self.committed
        return "looked"

    @property
    def committed(self) -> set[str]:
        found = rows(self.inline, self.run_id)
        return {path.removeprefix("f/") for path, status in found.items() if status == "completed" and path != "f"}


@pytest.fixture
def work(inline: Inline) -> Work:
    return Work(inline)


def commits(inline: Inline) -> list[int]:
    """How many ends each commit of the store has from now on."""
    sizes: list[int] = []
    several, one = inline.store.record_checkpoints, inline.store.record_checkpoint

    def counted_several(claim: Any, writes: Sequence[Any], state: Any = None) -> Any:
        sizes.append(len(writes))
        return several(claim, writes, state)

    def counted_one(*args: Any) -> Any:
        sizes.append(1)
        return one(*args)

    inline.store.record_checkpoints = counted_several  # type: ignore[method-assign]
    inline.store.record_checkpoint = counted_one  # type: ignore[method-assign]
    return sizes


def test_ten_inline_steps_are_one_commit_and_the_rest_is_committed_with_the_end(inline: Inline, work: Work) -> None:
    sizes = commits(inline)
    done = run(inline, lambda ctx: [ctx.step(work.do(f"s{number}")) for number in range(23)])
    assert done == [f"s{number}" for number in range(23)]
    assert sizes == [10, 10, 3]
    assert [len(work.seen[f"s{number}"]) for number in (0, 9, 10, 19, 20, 22)] == [0, 0, 10, 10, 20, 20]
    assert work.committed == {f"s{number}" for number in range(23)}


def test_a_replay_reads_them_in_the_order_in_which_they_ended(inline: Inline, work: Work) -> None:
    """On the clock of the test, all of them end at the same moment."""
    names = ["z", "y", "a", "m"]

    def body(ctx: Any) -> Any:
        first = [ctx.step(work.do(name)) for name in names]
        ctx.sleep(0.01)
        return [*first, *(ctx.step(work.do(f"{name}2")) for name in names)]

    assert run(inline, body) == [*names, *(f"{name}2" for name in names)]
    assert set(work.calls.values()) == {1}
    ended = [one.path for one in inline.rival.history("r") if one.what == "completed" and one.path != "f"]
    assert [path.removeprefix("f/") for path in ended if path] == [*names, "sleep", *(f"{name}2" for name in names)]


NEXT: dict[str, Callable[[Any, Work], Any]] = {
    "a durable step": lambda ctx, work: ctx.step(work.look),
    "steps together": lambda ctx, work: ctx.gather(work.look, work.do("other")),
    "a step with a timeout": lambda ctx, work: ctx.step(step(work.look, timeout=60, execution_mode="inline")),
    "a value": lambda ctx, work: (ctx.now(), ctx.step(work.do("look"))),
    "a spawned child": lambda ctx, work: (ctx.spawn("child"), ctx.step(work.do("look"))),
    "a child": lambda ctx, work: (ctx.call("child"), ctx.step(work.do("look"))),
    "a sleep": lambda ctx, work: (ctx.sleep(0.01), ctx.step(work.do("look"))),
    "a sleep that ends at once": lambda ctx, work: (ctx.sleep(0), ctx.step(work.do("look"))),
    "a wait": lambda ctx, work: (ctx.await_event("never", timeout=0), ctx.step(work.do("look"))),
}


@pytest.mark.parametrize("following", NEXT)
def test_they_are_committed_before_what_is_not_an_inline_step(inline: Inline, work: Work, following: str) -> None:
    inline.define("child", step(lambda: 1, name="one"))

    def body(ctx: Any) -> None:
        ctx.step(work.do("a"))
        ctx.step(work.do("b"))
        NEXT[following](ctx, work)

    assert run(inline, body) is None
    assert work.seen["look"] >= {"a", "b"}
    assert {"a": 1, "b": 1}.items() <= work.calls.items()


def test_a_process_that_dies_before_the_commit_runs_them_again_but_not_those_before(inline: Inline, work: Work) -> None:
    dies = [True]

    def die() -> None:
        if dies:
            dies.clear()
            raise Killed

    def body(ctx: Any) -> Any:
        ctx.step(work.do("a"))
        ctx.sleep(0)
        ctx.step(work.do("b"))
        return [ctx.step(work.do("c")), ctx.step(work.do("d", die))]

    define(inline, body)
    inline.rival.run("f", run_id="r")
    with pytest.raises(Killed):
        inline.drain()
    assert work.committed == {"a", "sleep"}
    inline.process.hand_back(inline.process.executor.id)
    inline.process.executor.running.all.clear()
    assert finish(inline) == ["c", "d"]
    assert work.calls == {"a": 1, "b": 2, "c": 2, "d": 2}


def test_a_failure_is_committed_with_the_ends_before_it_and_a_retry_repeats_none_of_them(
    inline: Inline, work: Work
) -> None:
    def fail() -> None:
        raise StepError("no")

    sizes = commits(inline)
    assert run(inline, lambda ctx: [ctx.step(work.do("a")), ctx.step(work.do("b", fail))]) == "StepFailed"
    assert sizes == [2]
    assert rows(inline) == {"f": "failed", "f/a": "completed", "f/b": "failed"}
    inline.rival.retry("r")
    assert finish(inline) == "StepFailed"
    assert work.calls == {"a": 1, "b": 2}


def test_a_step_that_is_tried_again_leaves_the_ends_before_it_committed(inline: Inline, work: Work) -> None:
    def fail_once() -> None:
        if work.calls["b"] == 1:
            raise ValueError("once")

    def body(ctx: Any) -> Any:
        return [ctx.step(work.do("a")), ctx.step(work.do("b", fail_once, max_retries=1))]

    assert run(inline, body) == ["a", "b"]
    assert work.calls == {"a": 1, "b": 2}


def test_a_flow_that_raises_leaves_them_committed(inline: Inline, work: Work) -> None:
    def body(ctx: Any) -> None:
        ctx.step(work.do("a"))
        raise ValueError("wrong")

    assert run(inline, body) == "ValueError"
    assert rows(inline) == {"f": "failed", "f/a": "completed"}


def test_an_end_whose_answer_is_lost_is_not_executed_again(inline: Inline, work: Work) -> None:
    real, lost = inline.store.record_checkpoints, [True]

    def lose(*args: Any) -> Any:
        ended = real(*args)
        if lost:
            lost.clear()
            raise DatabaseUnavailable("the answer was lost")
        return ended

    inline.store.record_checkpoints = lose  # type: ignore[method-assign]
    assert run(inline, lambda ctx: [ctx.step(work.do(name)) for name in "abc"]) == ["a", "b", "c"]
    assert set(work.calls.values()) == {1}
    assert [one.what for one in inline.rival.history("r") if one.path == "f/b"] == ["completed"]


def test_what_the_database_refuses_together_is_committed_alone(
    inline: Inline, work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(*args: Any) -> Any:
        raise DatabaseRefused("a number is out of range", "22003")

    monkeypatch.setattr(inline.store, "record_checkpoints", refuses)
    assert run(inline, lambda ctx: [ctx.step(work.do(name)) for name in "abc"]) == ["a", "b", "c"]
    assert work.calls == {"a": 2, "b": 2, "c": 2}


def test_a_flow_that_was_cancelled_meanwhile_stores_none_of_them(inline: Inline, work: Work) -> None:
    def cancel() -> None:
        inline.rival.cancel("r")

    assert run(inline, lambda ctx: [ctx.step(work.do("a")), ctx.step(work.do("b", cancel))]) == "cancelled"
    assert rows(inline) == {"f": "cancelled"}


def test_a_flow_that_was_paused_meanwhile_stops_with_their_commit_and_repeats_nothing(
    inline: Inline, work: Work
) -> None:
    def pause() -> None:
        if work.calls["b"] == 1:
            inline.rival.pause("r")

    define(inline, lambda ctx: [ctx.step(work.do("a")), ctx.step(work.do("b", pause)), ctx.step(work.look)])
    inline.rival.run("f", run_id="r")
    inline.drain()
    assert work.committed == {"a", "b"}
    assert "look" not in work.seen
    inline.rival.resume("r")
    assert finish(inline) == ["a", "b", "looked"]
    assert work.calls == {"a": 1, "b": 1}


def test_continue_as_deletes_them_in_its_own_commit(inline: Inline, work: Work) -> None:
    sizes = commits(inline)

    def body(ctx: Any, input: int | None) -> Any:
        left = 3 if input is None else input
        ctx.step(work.do("a"))
        return "done" if left == 0 else ctx.continue_as(left - 1)

    assert run(inline, body) == "done"
    assert work.calls == {"a": 4}
    assert sizes == [1]


def test_the_state_is_committed_with_them(inline: Inline, work: Work) -> None:
    def body(ctx: Any) -> None:
        ctx.step(work.do("a"))
        ctx.state.n = 1
        ctx.step(work.do("b"))
        ctx.await_event("never", timeout=60)

    define(inline, body)
    inline.rival.run("f", run_id="r")
    inline.drain()
    [flow] = [one for one in inline.rival.state("r").steps if one.path == "f"]
    assert (flow.state, work.committed) == ({"n": 1}, {"a", "b"})


def calling(steps: Sequence[Any]) -> Callable[[Any], Any]:
    return lambda ctx: [ctx.step(one) for one in steps]


def test_no_end_waits_for_a_step_that_takes_long(inline: Inline, work: Work, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [1000.0]
    monkeypatch.setattr(inline.coordinator.limits, "clock", lambda: clock[0])

    def take_long() -> None:
        clock[0] += 100

    sizes = commits(inline)
    for run_id in ("r", "again"):
        other = Work(inline, run_id)
        steps = [other.do("a"), other.do("b"), other.do("slow", take_long), other.do("c"), other.do("d")]
        run(inline, calling(steps), run_id=run_id)
    # From then on it is known to take long.
    assert sizes == [3, 2, 2, 1, 2]


def test_ends_that_have_waited_for_long_are_committed_before_the_next_step(
    inline: Inline, work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [1000.0]
    monkeypatch.setattr(inline.coordinator.limits, "clock", lambda: clock[0])

    def body(ctx: Any) -> None:
        ctx.step(work.do("a"))
        clock[0] += 100
        ctx.step(work.do("b"))

    run(inline, body)
    assert work.seen["b"] == {"a"}


def test_the_option_changes_nothing_in_an_async_flow(inline: Inline, work: Work) -> None:
    sizes = commits(inline)

    async def body(ctx: Any) -> Any:
        return [await ctx.step(work.do(name)) for name in "abc"]

    assert run(inline, body) == ["a", "b", "c"]
    assert sizes == [1, 1, 1]


def test_with_a_hook_each_end_is_committed_before_the_hook_is_called(inline: Inline, work: Work) -> None:
    seen: list[tuple[str, set[str]]] = []

    def committed(event: Any) -> None:
        seen.append((event.step, work.committed))

    define(inline, calling([work.do("a"), work.do("b")]), hooks={"on_checkpoint": committed})
    inline.rival.run("f", run_id="r")
    assert finish(inline) == ["a", "b"]
    assert seen[:2] == [("f/a", {"a"}), ("f/b", {"a", "b"})]


#: How many random flows.
COUNT = examples(12)


def random_program(dice: random.Random) -> list[str]:
    kinds = ["inline"] * 6 + ["durable", "fails", "sleep", "now", "together"]
    return [dice.choice(kinds) for _ in range(dice.randint(3, 30))]


class Dying:
    """Steps that return how often they were called, in processes that die at random points."""

    def __init__(self, dice: random.Random) -> None:
        self.dice, self.calls, self.deaths = dice, Counter[str](), Counter[str]()

    def step(self, name: str, mode: str) -> Any:
        def function() -> int:
            if sum(self.deaths.values()) < 6 and self.dice.random() < 0.05:
                self.deaths[name] += 1
                raise Killed
            self.calls[name] += 1
            if mode == "fails":
                raise ValueError(self.calls[name])
            return self.calls[name]

        return step(function, name=name, execution_mode="durable" if mode == "durable" else "inline")

    def flow(self, program: Sequence[str]) -> Callable[[Any], Any]:
        def body(ctx: Any) -> Any:
            return [self.value(ctx, f"{kind}{place}", kind) for place, kind in enumerate(program)]

        return body

    def value(self, ctx: Any, name: str, kind: str) -> Any:
        match kind:
            case "sleep":
                return ctx.sleep(0.01)
            case "now":
                return ctx.now().isoformat()
            case "together":
                return ctx.gather(*(self.step(f"{name}{lane}", "inline") for lane in "ab"))
        try:
            return ctx.step(self.step(name, kind))
        except StepFailed as failed:
            return failed.error["message"]


@pytest.mark.parametrize("number", range(COUNT))
def test_random_flows_return_what_is_stored_however_often_their_process_dies(inline: Inline, number: int) -> None:
    dice = random.Random(number)
    program, dying = random_program(dice), Dying(random.Random(number))
    define(inline, dying.flow(program))
    inline.rival.run("f", run_id="r")
    result: Any = None
    while result is None:
        try:
            result = finish(inline)
        except Killed:
            inline.process.hand_back(inline.process.executor.id)
            inline.process.executor.running.all.clear()
    stored = {one.path.removeprefix("f/"): one for one in inline.rival.state("r").steps}
    for place, kind in enumerate(program):
        name = f"{kind}{place}"
        match kind:
            case "inline" | "durable":
                assert stored[name].result == result[place] == dying.calls[name]
            case "fails":
                assert (stored[name].error or {})["message"] == result[place] == str(dying.calls[name])
            case "together":
                assert [stored[f"{name}{lane}"].result for lane in "ab"] == result[place]
        if kind == "durable":
            assert dying.calls[name] == 1
