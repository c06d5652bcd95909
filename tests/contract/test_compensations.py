"""Compensations: when a run will fail, its completed steps are undone, the last one first."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import pytest
from pydantic import BaseModel

from rival_client.broker.message import StepMessage
from rival_client.errors import NotPossible
from rival_client.model.payload import Json
from rival_client.model.records import RunState
from rival_workers import StepError, branch, flow, for_each, loop, parallel, step, workflow
from rival_workers.definition.define import define_workflow
from rival_workers.engine.decisions import End
from rival_workers.engine.effects import Advance, EndRun
from rival_workers.runtime.attempt import inline_ends
from rival_workers.store.claim_records import Claim
from rival_workers.store.sql import scopes
from rival_workers.testing.clock import MOMENT
from tests.contract.test_operators import settled
from tests.support.inline import Clock, Inline
from tests.support.output import whole

Make = Callable[..., Inline]


@pytest.fixture(params=["sqlite", "sqlite by messages", "postgres"])
def make(request: pytest.FixtureRequest) -> Iterator[Make]:
    on_postgres = request.param.startswith("postgres")
    url = request.getfixturevalue("postgres_url" if on_postgres else "file_url")
    budget = 0.0 if request.param.endswith("by messages") else 1.0
    opened: list[Inline] = []

    def open_(**settings: Any) -> Inline:
        clock = None if on_postgres else Clock()
        opened.append(Inline(url, clock=clock, continuation_budget=budget, **settings))
        return opened[-1]

    yield open_
    for inline in opened:
        inline.close()


LATE, ENDS = End("completed", Json('"late"')), Advance((EndRun("completed"),))


class World:
    """What steps and compensations have done, and which of them are out of order."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.broken: set[str] = set()
        self.inline: Inline | None = None

    def act(self, ctx: Any) -> str:
        self.done.append(ctx.run.step)
        if self.inline is not None and self.inline.clock is not None:
            self.inline.clock.advance(MOMENT)
        if self.broken & {ctx.run.step, ctx.run.step.rpartition("/")[2]}:
            raise StepError(f"{ctx.run.step} is broken", behavior="retry")
        return str(ctx.run.step)

    def step(self, name: str, **options: Any) -> Any:
        """A step that can be undone."""

        def undo(ctx: Any) -> None:
            self.act(ctx)

        return step(lambda ctx: self.act(ctx), **{"name": name, "compensate": undo, "backoff": "none", **options})

    def plain(self, name: str, **options: Any) -> Any:
        """A step that cannot."""
        return step(lambda ctx: self.act(ctx), name=name, **options)

    def nested(self, name: str, *steps: Any, **options: Any) -> Any:
        """A workflow that keeps its failure to itself."""
        return workflow(define_workflow(name, steps, **options), propagate_failure=False)

    def undone(self) -> list[str]:
        return [one.removesuffix("!compensate") for one in self.done if one.endswith("!compensate")]

    def take(self) -> list[str]:
        done, self.done = self.done, []
        return done

    def start(self, inline: Inline, *steps: Any, **options: Any) -> str:
        self.inline = inline
        inline.define("w", *steps, **options)
        run_id = inline.rival.run("w").run_id
        inline.drain()
        return run_id


@pytest.fixture
def world() -> World:
    return World()


def retried_after_cancel(inline: Inline, world: World, *steps: Any) -> RunState:
    """The run is cancelled while it is being undone, and then it is tried again with all of it mended."""
    run_id = world.start(inline, *steps)
    assert settled(inline, run_id).status == "cancelled"
    world.broken.clear()
    world.take()
    inline.rival.retry(run_id)
    return settled(inline, run_id)


def status_of(state: RunState) -> dict[str, str]:
    return {one.path: one.status for one in state.steps}


def test_what_was_completed_is_undone_in_the_reverse_order_of_its_completion(make: Make, world: World) -> None:
    inline = make()
    world.broken = {"last"}
    run_id = world.start(inline, world.step("b"), world.step("c"), world.step("a"), world.step("last"))
    assert world.done == ["b", "c", "a", "last", "a!compensate", "c!compensate", "b!compensate"]
    state = inline.rival.state(run_id)
    assert (state.status, state.failed_step) == ("failed", "last")
    assert state.error is not None
    assert state.error["message"] == "last is broken"
    compensations = next(one for one in state.steps if one.path == "!compensate")
    assert (compensations.kind, compensations.status) == ("compensating", "completed")
    assert (compensations.total, compensations.opened, compensations.remaining) == (3, 3, 0)
    assert {one.kind for one in state.steps if one.path.endswith("a!compensate")} == {"compensation"}


@pytest.mark.parametrize("mode", ["inline", "durable"])
def test_what_was_completed_at_one_time_is_undone_in_the_reverse_order_too(
    make: Make, world: World, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inline_ends, "WITHIN", 60.0)
    inline, names = make(), ["z", "y", "s10", "s9", "s2", "b", "a"]
    world.broken = {"last"}
    # The ends of one commit have one time; with a clock that stands still, all commits have.
    inline.define("w", *[world.step(name, execution_mode=mode) for name in names], world.plain("last"))
    inline.rival.run("w")
    inline.drain()
    assert world.undone() == list(reversed(names))


def test_only_what_is_completed_and_can_be_undone_is(make: Make, world: World) -> None:
    def skips(state: Any) -> None:
        state.skipped = True

    def fails_softly() -> None:
        raise StepError("never mind", behavior="continue")

    steps = [
        world.step("a"),
        world.plain("b"),
        step(skips, compensate=world.act),
        step(fails_softly, compensate=world.act),
        world.step("c"),
        world.step("last"),
        world.step("never"),
    ]
    world.broken = {"last"}
    world.start(make(), *steps)
    assert world.undone() == ["c", "a"]


def test_a_run_that_completes_undoes_nothing_nor_does_a_soft_failure(make: Make, world: World) -> None:
    def fails_softly() -> None:
        raise StepError("never mind", behavior="continue")

    inline = make()
    run_id = world.start(inline, world.step("a"), step(fails_softly, compensate=world.act), world.step("b"))
    assert inline.rival.state(run_id).status == "completed"
    assert world.done == ["a", "b"]


def test_a_run_with_nothing_to_undo_simply_fails(make: Make, world: World) -> None:
    inline = make()
    world.broken = {"a"}
    run_id = world.start(inline, world.step("a"), world.step("b"))
    assert status_of(inline.rival.state(run_id)) == {"a": "failed"}
    assert inline.rival.state(run_id).status == "failed"


def test_the_steps_handler_comes_first_then_what_undoes_then_the_workflows_handler(make: Make, world: World) -> None:
    inline = make()
    world.broken = {"last"}
    last = world.plain("last", on_error=lambda ctx: world.act(ctx))
    world.start(inline, world.step("a"), world.step("b"), last, on_error=lambda ctx: world.act(ctx))
    assert world.done == ["a", "b", "last", "last!on_error", "b!compensate", "a!compensate", "!on_error"]


def test_a_compensation_that_fails_is_recorded_and_changes_nothing_else(make: Make, world: World) -> None:
    inline = make()
    world.broken = {"last", "b!compensate"}
    run_id = world.start(inline, world.step("a"), world.step("b"), world.step("c"), world.plain("last"))
    assert world.undone() == ["c", "b", "a"]
    state = inline.rival.state(run_id)
    assert (state.status, state.failed_step) == ("failed", "last")
    statuses = status_of(state)
    assert (statuses["b!compensate"], statuses["a!compensate"], statuses["!compensate"]) == (
        "failed",
        "completed",
        "completed",
    )


def test_a_compensation_has_the_retries_and_the_timeout_of_its_step(make: Make, world: World) -> None:
    inline = make()
    seen: list[float | None] = []

    def undo(ctx: Any, run: Any) -> None:
        row = inline.store.read_step(run.run_id, run.step)
        seen.append(None if row is None or row.timeout_at is None else 1)
        world.act(ctx)
        if run.attempt < 3:
            raise StepError("not yet", behavior="retry")

    world.broken = {"last"}
    run_id = world.start(
        inline, world.step("a"), world.step("b", compensate=undo, max_attempts=3, timeout=60), world.plain("last")
    )
    assert world.undone() == ["b", "b", "b", "a"]
    assert seen == [1, 1, 1]
    state = inline.rival.state(run_id)
    assert [(one.path, one.outcome) for one in state.attempts if one.path == "b!compensate"] == [
        ("b!compensate", "failed"),
        ("b!compensate", "failed"),
        ("b!compensate", "completed"),
    ]


class Charge(BaseModel):
    id: int


def test_a_compensation_gets_what_the_step_returned_and_why_the_run_fails(make: Make, world: World) -> None:
    inline = make()
    seen: dict[str, Any] = {}

    def charge() -> Charge:
        return Charge(id=7)

    def refund(result: Charge, error: Any, failed_step: Any, last_step: Any, workflow_state: Any, steps: Any) -> str:
        seen.update(result=result, error=error["message"], failed=failed_step.step_name, last=last_step.step_name)
        seen.update(status=workflow_state.status, other=steps.a.result)
        return "refunded"

    world.broken = {"last"}
    run_id = world.start(inline, world.plain("a"), step(charge, compensate=refund), world.plain("last"))
    assert seen == {
        "result": Charge(id=7),
        "error": "last is broken",
        "failed": "last",
        "last": "last",
        "status": "failing",
        "other": "a",
    }
    row = next(one for one in inline.rival.state(run_id).steps if one.path == "charge!compensate")
    assert row.result == "refunded"
    assert "charge!compensate" not in inline.rival.result(run_id).results


def test_an_external_step_is_undone_by_a_worker(make: Make, world: World) -> None:
    inline = make()
    tokens: list[str] = []
    seen: list[Any] = []

    def ask(ctx: Any) -> None:
        tokens.append(ctx.completion_token)

    def undo(result: Any) -> None:
        seen.append(result)

    world.broken = {"last"}
    asked = step(ask, compensate=undo, execution_mode="external", deadline=600, heartbeat=300)
    run_id = world.start(inline, asked, world.plain("last"))
    inline.rival.complete_step(tokens[0], {"ok": 1})
    assert settled(inline, run_id).status == "failed"
    assert seen == [{"ok": 1}]


def test_a_flow_among_the_steps_is_undone_as_a_whole(make: Make, world: World) -> None:
    inline = make()
    seen: list[Any] = []

    @flow("journey", register=False)
    def journey(ctx: Any) -> str:
        return str(ctx.step(lambda: "there", name="go"))

    def come_back(result: Any) -> None:
        seen.append(result)

    world.broken = {"last"}
    run_id = world.start(inline, step(journey, compensate=come_back), world.plain("last"))
    assert inline.rival.state(run_id).status == "failed"
    assert seen == ["there"]


# -- composites -------------------------------------------------------------------------------------------


def test_a_nested_workflow_that_keeps_its_failure_is_undone_before_the_plan_goes_on(make: Make, world: World) -> None:
    inline = make()
    errors: list[Any] = []

    def undo(ctx: Any, error: Any, failed_step: Any) -> None:
        errors.append((error["message"], failed_step.step_name))
        world.act(ctx)

    pay = world.nested(
        "pay", world.step("x", compensate=undo), world.step("y"), world.plain("z"), on_error=lambda ctx: world.act(ctx)
    )
    world.broken = {"z", "last"}
    run_id = world.start(inline, world.step("a"), pay, world.step("b"), world.plain("last"))
    assert world.done == [
        "a",
        "pay/x",
        "pay/y",
        "pay/z",
        "pay/y!compensate",
        "pay/x!compensate",
        "pay!on_error",
        "b",
        "last",
        "b!compensate",
        "a!compensate",
    ]
    assert errors == [("pay/z is broken", "z")]
    statuses = status_of(inline.rival.state(run_id))
    assert (statuses["pay!compensate"], statuses["!compensate"]) == ("completed", "completed")


def test_a_nested_workflow_that_was_completed_is_undone_with_the_run(make: Make, world: World) -> None:
    inline = make()
    pay = world.nested("pay", world.step("x"), world.step("y"))
    world.broken = {"last"}
    world.start(inline, world.step("a"), pay, world.step("b"), world.plain("last"))
    assert world.undone() == ["b", "pay/y", "pay/x", "a"]


def test_a_nested_workflow_whose_failure_goes_up_is_undone_with_the_run(make: Make, world: World) -> None:
    inline = make()
    inner = define_workflow("inner", [world.step("x"), world.plain("y")], on_error=lambda ctx: world.act(ctx))
    world.broken = {"y"}
    world.start(inline, world.step("a"), workflow(inner), on_error=lambda ctx: world.act(ctx))
    assert world.done[-4:] == ["inner!on_error", "inner/x!compensate", "a!compensate", "!on_error"]


def test_a_failure_kept_within_lets_no_result_and_no_error_through(make: Make, world: World) -> None:
    inline = make()
    pay = world.nested("pay", world.step("x"), world.plain("z"))
    world.broken = {"z"}
    run_id = world.start(inline, branch("if", when=lambda: True, then=[pay]))
    state = inline.rival.state(run_id)
    assert (state.status, state.result, state.error) == ("completed", None, None)
    assert world.undone() == ["if/pay/x"]


@pytest.mark.parametrize("on_failure", ["cancel", "wait"])
def test_all_lanes_of_a_parallel_are_undone(make: Make, world: World, on_failure: Any) -> None:
    inline = make()
    ways = [[world.step("x"), world.step("y")], [world.step("u"), world.plain("v")]]
    world.broken = {"v"}
    world.start(inline, world.step("a"), parallel("p", ways, on_failure=on_failure))
    completed = [one for one in world.done if one in ("a", "p/x", "p/y", "p/u")]
    assert world.undone() == completed[::-1]
    assert {"a", "p/u"} <= set(completed)


@pytest.mark.parametrize("on_failure", ["cancel", "wait"])
@pytest.mark.parametrize("concurrency", [1, 3])
def test_all_items_of_a_for_each_are_undone_and_know_their_item(
    make: Make, world: World, on_failure: Any, concurrency: int
) -> None:
    inline = make()
    items: list[Any] = []

    def release(ctx: Any, item: Any, index: int, result: Any) -> None:
        items.append((item, index, result))
        world.act(ctx)

    do = [world.step("reserve", compensate=release), world.plain("pack")]
    world.broken = {"lines[2]/pack"}
    lines = for_each("lines", items=lambda: list("abcde"), do=do, concurrency=concurrency, on_failure=on_failure)
    world.start(inline, lines)
    completed = [one for one in world.done if one.endswith("/reserve")]
    assert world.undone() == completed[::-1]
    assert len(completed) >= 3
    assert items == [("abcde"[n], n, f"lines[{n}]/reserve") for n in (int(one[6]) for one in completed[::-1])]


def test_all_iterations_of_a_loop_are_undone(make: Make, world: World) -> None:
    inline = make()
    turns = loop("turns", do=[world.step("x"), world.step("y")], max_iterations=3)
    world.broken = {"turns[2]/y"}
    world.start(inline, turns)
    assert world.undone() == ["turns[2]/x", "turns[1]/y", "turns[1]/x", "turns[0]/y", "turns[0]/x"]


def test_lanes_whose_failure_does_not_matter_undo_nothing_until_the_run_fails(make: Make, world: World) -> None:
    inline = make()
    lines = for_each(
        "lines",
        items=lambda: [1, 2],
        do=[world.step("x"), world.plain("y")],
        on_failure="continue",
    )
    world.broken = {"lines[0]/y", "last"}
    world.start(inline, lines, world.step("b"), world.plain("last"))
    assert world.done[:6] == ["lines[0]/x", "lines[0]/y", "lines[1]/x", "lines[1]/y", "b", "last"]
    assert world.undone() == ["b", "lines[1]/x", "lines[0]/x"]


def test_a_workflow_whose_compensating_is_stopped_by_its_neighbours_failure_is_undone_with_the_run(
    make: Make, world: World
) -> None:
    """A late result of the compensation that was stopped is refused, and it begins again."""
    inline = world.inline = make()
    beside: list[StepMessage] = []
    tokens: list[int] = []
    late: list[Any] = []

    def undo(ctx: Any, run: Any) -> None:
        world.act(ctx)
        seen = inline.store.token_of(run.run_id, run.step)
        assert seen is not None
        tokens.append(seen[1])
        if len(tokens) == 2:
            late.append(inline.store.finish_step(Claim(run.run_id, run.step, tokens[0]), LATE, ENDS, claim_for=None))
        if world.undone() == ["p/pay/x"]:
            [message] = beside or [message for message in inline.doorbell.messages if message.path == "p/v"]
            inline.deliver(message)

    pay = world.nested("pay", world.step("w"), world.step("x", compensate=undo), world.plain("y"))
    world.broken = {"y", "v"}
    inline.define("w", parallel("p", [pay, world.plain("v")]))
    run_id = inline.rival.run("w").run_id
    while waiting := inline.doorbell.take():
        beside += [message for message in waiting if message.path == "p/v"]
        for message in waiting:
            if message not in beside:
                inline.deliver(message)
    state = settled(inline, run_id)
    assert (state.status, state.failed_step) == ("failed", "p/v")
    assert world.undone() == ["p/pay/x", "p/pay/x", "p/pay/w"]
    statuses = status_of(state)
    assert (statuses["p/pay!compensate"], statuses["!compensate"]) == ("cancelled", "completed")
    assert (statuses["p/pay/x!compensate"], statuses["p/pay/w!compensate"]) == ("completed", "completed")
    assert "late_result_refused" in [one.what for one in inline.rival.history(run_id)]
    assert late == [None], "the token of the one that was stopped is not its successor's"


def test_very_many_are_undone_bit_by_bit(make: Make, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scopes, "AT_ONCE", 2)
    inline = make()
    world.broken = {"last"}
    run_id = world.start(inline, *(world.step(f"s{n}") for n in range(6)), world.plain("last"))
    assert world.undone() == ["s5", "s4", "s3", "s2", "s1", "s0"]
    row = next(one for one in inline.rival.state(run_id).steps if one.path == "!compensate")
    assert (row.total, row.opened, row.remaining, row.item) == (6, 6, 0, ["s1", "s0"])


# -- operators --------------------------------------------------------------------------------------------


def test_a_cancelled_run_undoes_nothing(make: Make, world: World) -> None:
    inline = make()

    def stop(ctx: Any) -> None:
        inline.rival.cancel(ctx.run.run_id)

    run_id = world.start(inline, world.step("a"), step(stop), world.step("c"))
    assert settled(inline, run_id).status == "cancelled"
    assert world.done == ["a"]


def cancel_at(world: World, path: str) -> Callable[[Any], None]:
    """A compensation at the beginning of which the run is cancelled."""

    def undo(ctx: Any) -> None:
        world.act(ctx)
        if path == ctx.run.step and world.inline is not None:
            world.inline.rival.cancel(ctx.run.run_id)

    return undo


def stopped_halfway(inline: Inline, world: World) -> str:
    """Of a, b, c the last is undone, and the run was cancelled while b was."""
    undo = cancel_at(world, "b!compensate")
    world.broken = {"last"}
    names = [world.step(name, compensate=undo) for name in "abc"]
    run_id = world.start(inline, *names, world.plain("last"), on_error=lambda ctx: world.act(ctx))
    assert settled(inline, run_id).status == "cancelled"
    assert world.take() == ["a", "b", "c", "last", "c!compensate", "b!compensate"]
    world.broken.clear()
    return run_id


def test_a_cancel_during_compensation_cancels_what_is_left(make: Make, world: World) -> None:
    inline = make()
    run_id = stopped_halfway(inline, world)
    statuses = status_of(inline.rival.state(run_id))
    assert (statuses["!compensate"], statuses["b!compensate"]) == ("cancelled", "cancelled")
    assert "a!compensate" not in statuses


def test_a_retry_goes_back_to_the_first_step_whose_compensation_has_begun(make: Make, world: World) -> None:
    inline = make()
    run_id = stopped_halfway(inline, world)
    preview = inline.rival.retry(run_id, dry_run=True)
    assert (preview.opened, sorted(preview.runs_again)) == (("b",), ["b", "c", "last"])
    inline.rival.retry(run_id)
    assert status_of(inline.rival.state(run_id)) == {"a": "completed", "b": "pending"}
    state = settled(inline, run_id)
    assert (state.status, world.done) == ("completed", ["b", "c", "last"])


def test_a_late_result_of_a_compensation_of_before_is_refused(make: Make, world: World) -> None:
    """The run is rewound while the compensation runs, and fails again."""
    inline = make()
    rewound: list[str] = []

    def undo(ctx: Any) -> str:
        world.act(ctx)
        if not rewound:
            rewound.append(ctx.run.run_id)
            inline.rival.rewind(ctx.run.run_id, "last")
            inline.drain()
        return f"undone {len(world.undone())}"

    world.broken = {"last"}
    run_id = world.start(inline, world.step("a", compensate=undo), world.plain("last"))
    assert world.done == ["a", "last", "a!compensate", "a", "last", "a!compensate"]
    row = next(one for one in inline.rival.state(run_id).steps if one.path == "a!compensate")
    assert row.result == "undone 2"
    assert "late_result_refused" in [one.what for one in inline.rival.history(run_id)]


def test_a_retry_after_all_was_undone_begins_again_and_can_be_undone_again(make: Make, world: World) -> None:
    inline = make()
    world.broken = {"last"}
    run_id = world.start(inline, world.plain("zero"), world.step("a"), world.step("b"), world.plain("last"))
    for _ in range(2):
        world.take()
        assert inline.rival.retry(run_id).opened == ("a",)
        assert settled(inline, run_id).status == "failed"
        assert world.done == ["a", "b", "last", "b!compensate", "a!compensate"]
    world.broken.clear()
    inline.rival.retry(run_id)
    state = settled(inline, run_id)
    assert status_of(state) == {"zero": "completed", "a": "completed", "b": "completed", "last": "completed"}
    assert state.status == "completed"


def test_a_rewind_to_a_later_step_goes_back_as_far_as_the_run_was_compensated(make: Make, world: World) -> None:
    inline = make()
    world.broken = {"last"}
    run_id = world.start(inline, world.plain("zero"), world.step("a"), world.plain("b"), world.plain("last"))
    world.broken.clear()
    world.take()
    assert inline.rival.rewind(run_id, "last", dry_run=True).runs_again == ("a", "b", "last")
    assert inline.rival.rewind(run_id, "last").opened == ("a",)
    assert settled(inline, run_id).status == "completed"
    assert world.done == ["a", "b", "last"]


def test_a_rewind_of_a_run_that_was_not_compensated_undoes_nothing(make: Make, world: World) -> None:
    inline = make()
    run_id = world.start(inline, world.step("a"), world.step("b"), world.step("c"))
    world.take()
    inline.rival.rewind(run_id, "b")
    assert settled(inline, run_id).status == "completed"
    assert world.done == ["b", "c"]


def test_a_retry_goes_back_in_every_lane(make: Make, world: World) -> None:
    inline = make()
    ways = [[world.plain("w"), world.step("x"), world.step("y")], [world.step("u"), world.plain("v")], world.plain("t")]
    world.broken = {"v"}
    run_id = world.start(inline, parallel("p", ways, on_failure="wait"), world.plain("z"))
    assert inline.rival.state(run_id).status == "failed"
    world.broken.clear()
    world.take()
    assert set(inline.rival.retry(run_id).opened) == {"p/x", "p/u"}
    state = settled(inline, run_id)
    assert (state.status, sorted(world.done)) == ("completed", ["p/u", "p/v", "p/x", "p/y", "z"])
    row = next(one for one in state.steps if one.path == "p")
    assert (row.remaining, row.result) == (0, {"y": "p/y", "v": "p/v", "t": "p/t"})


@pytest.mark.slow
@pytest.mark.parametrize("concurrency", [1, 2, 9])
@pytest.mark.parametrize("on_failure", ["cancel", "wait"])
def test_items_that_were_undone_run_again_in_their_order(
    make: Make, world: World, concurrency: int, on_failure: Any
) -> None:
    inline = make()
    do = [world.step("reserve"), world.plain("pack")]
    world.broken = {"lines[3]/pack"}
    lines = for_each("lines", items=lambda: list("abcde"), do=do, concurrency=concurrency, on_failure=on_failure)
    run_id = world.start(inline, lines, world.plain("z"))
    world.broken.clear()
    world.take()
    assert len(inline.rival.retry(run_id).opened) == min(concurrency, 5)
    state = settled(inline, run_id)
    assert state.status == "completed"
    assert sorted(world.done) == sorted(
        [*(f"lines[{n}]/{name}" for n in range(5) for name in ("pack", "reserve")), "z"]
    )
    row = next(one for one in state.steps if one.path == "lines")
    assert (row.total, row.opened, row.remaining) == (5, 5, 0)
    assert row.result == [f"lines[{n}]/pack" for n in range(5)]


def test_items_of_which_only_some_were_undone_go_on_each_where_it_is(make: Make, world: World) -> None:
    inline = make()
    undo = cancel_at(world, "lines[2]/reserve!compensate")
    do = [world.step("reserve", compensate=undo), world.plain("pack")]
    world.broken = {"last"}
    lines = for_each("lines", items=lambda: list("abcd"), do=do)
    run_id = world.start(inline, lines, world.plain("last"))
    assert settled(inline, run_id).status == "cancelled"
    world.broken.clear()
    world.take()
    assert inline.rival.retry(run_id).opened == ("lines[2]/reserve",)
    assert settled(inline, run_id).status == "completed"
    again = ["lines[2]/reserve", "lines[2]/pack", "lines[3]/reserve", "lines[3]/pack", "last"]
    assert world.done == again


def test_a_retry_goes_back_to_the_iteration_of_a_loop_that_was_undone(make: Make, world: World) -> None:
    inline = make()
    undo = cancel_at(world, "turns[1]/x!compensate")
    turns = loop("turns", do=[world.step("x", compensate=undo)], max_iterations=3)
    world.broken = {"last"}
    assert retried_after_cancel(inline, world, turns, world.plain("last")).status == "completed"
    assert world.done == ["turns[1]/x", "turns[2]/x", "last"]


def test_what_was_undone_within_a_failure_that_was_kept_stays_undone(make: Make, world: World) -> None:
    inline = make()
    pay = world.nested("pay", world.step("x"), world.plain("y"))
    world.broken = {"y", "last"}
    run_id = world.start(inline, pay, world.plain("b"), world.plain("last"))
    world.broken.clear()
    world.take()
    inline.rival.retry(run_id)
    state = settled(inline, run_id)
    assert (state.status, world.take()) == ("completed", ["last"])
    assert status_of(state)["pay/x!compensate"] == "completed"
    inline.rival.rewind(run_id, "pay/y")
    state = settled(inline, run_id)
    assert (state.status, world.done) == ("completed", ["pay/x", "pay/y", "b", "last"])
    assert "pay/x!compensate" not in status_of(state)


def test_a_workflow_whose_compensating_was_cancelled_is_tried_again(make: Make, world: World) -> None:
    inline = make()
    undo = cancel_at(world, "pay/x!compensate")
    pay = world.nested("pay", world.step("w"), world.step("x", compensate=undo), world.plain("y"))
    world.broken = {"y"}
    assert retried_after_cancel(inline, world, pay, world.plain("b")).status == "completed"
    assert world.done == ["pay/x", "pay/y", "b"]


def test_a_rewind_beside_a_workflow_that_is_being_compensated_leaves_that_alone(make: Make, world: World) -> None:
    inline = make()
    rewound: list[str] = []

    def undo(ctx: Any) -> None:
        world.act(ctx)
        if not rewound:
            rewound.append(ctx.run.run_id)
            inline.rival.rewind(ctx.run.run_id, "p/u")

    pay = world.nested("pay", world.step("w"), world.step("x", compensate=undo), world.plain("y"))
    world.broken = {"y"}
    run_id = world.start(inline, parallel("p", [[world.plain("u")], [pay]]), world.plain("z"))
    state = settled(inline, run_id)
    assert state.status == "completed"
    assert world.undone() == ["p/pay/x", "p/pay/w"]
    assert (world.done.count("p/u"), world.done[-1]) == (2, "z")


@pytest.mark.parametrize("verb", ["skip", "set_result"])
def test_an_operator_ends_a_compensation_that_is_stuck(make: Make, world: World, verb: str) -> None:
    inline = make()
    world.broken = {"last", "b!compensate"}
    run_id = world.start(
        inline,
        world.step("a"),
        world.step("b", backoff="linear", base_delay=600, max_delay=900, max_attempts=5),
        world.plain("last"),
    )
    assert status_of(inline.rival.state(run_id))["b!compensate"] == "waiting_retry"
    options = {"result": "by hand"} if verb == "set_result" else {}
    getattr(inline.rival, verb)(run_id, "b!compensate", reason="it is gone", **options)
    state = settled(inline, run_id)
    assert state.status == "failed"
    assert world.undone() == ["b", "a"]
    assert status_of(state)["b!compensate"] == ("skipped" if verb == "skip" else "completed")


def test_a_run_paused_during_compensation_continues_when_it_is_resumed(make: Make, world: World) -> None:
    inline = make()

    def undo(ctx: Any) -> None:
        world.act(ctx)
        inline.rival.pause(ctx.run.run_id)

    world.broken = {"last"}
    run_id = world.start(inline, world.step("a"), world.step("b", compensate=undo), world.plain("last"))
    assert status_of(inline.rival.state(run_id))["a!compensate"] == "pending"
    inline.rival.resume(run_id)
    assert settled(inline, run_id).status == "failed"
    assert world.undone() == ["b", "a"]


def test_the_compensating_row_can_be_neither_settled_nor_rewound_to(make: Make, world: World) -> None:
    inline = make()
    world.broken = {"last"}
    run_id = world.start(inline, world.step("a"), world.plain("last"))
    with pytest.raises(
        NotPossible,
        match=whole("Cannot rewind run '…': 'a!compensate' is not a step: rewind to 'a' instead. Nothing was changed."),
    ):
        inline.rival.rewind(run_id, "a!compensate")
    with pytest.raises(
        NotPossible,
        match=whole(
            "Cannot skip run '…': it is failed, and its compensations have undone what came before 'last'. A "
            "retry begins again with a: retry it, and skip the step when the run has reached it. Nothing was "
            "changed."
        ),
    ):
        inline.rival.skip(run_id, "last", reason="why not")


@pytest.mark.parametrize(("verb", "again"), [("skip", ["b", "last"]), ("set_result", ["a", "b", "last"])])
def test_a_step_whose_compensation_was_skipped_before_it_began_stays_done(
    make: Make, world: World, verb: str, again: list[str]
) -> None:
    """A result set by hand means that an operator has undone the step by hand."""
    inline = make()

    def undo(ctx: Any) -> None:
        world.act(ctx)
        inline.rival.pause(ctx.run.run_id)

    world.broken = {"last"}
    run_id = world.start(inline, world.step("a"), world.step("b", compensate=undo), world.plain("last"))
    options = {"result": None} if verb == "set_result" else {}
    getattr(inline.rival, verb)(run_id, "a!compensate", reason="it must stay", **options)
    assert settled(inline, run_id).status == "failed"
    world.broken.clear()
    world.take()
    inline.rival.retry(run_id)
    assert settled(inline, run_id).status == "completed"
    assert world.done == again


def at_once(barrier: Barrier, inline: Inline, message: StepMessage) -> None:
    barrier.wait(10)
    inline.deliver(message)


@pytest.mark.slow
def test_a_cancel_that_meets_the_end_of_a_compensation_leaves_nothing_open(postgres_url: str, world: World) -> None:
    inline = Inline(postgres_url, continuation_budget=0.0)
    world.broken = {"last"}
    inline.define("w", *(world.step(f"s{n}") for n in range(5)), world.plain("last"))
    with ThreadPoolExecutor(2) as pool:
        for _ in range(20):
            run_id = inline.rival.run("w").run_id
            while not [message for message in inline.doorbell.messages if message.path == "s3!compensate"]:
                for message in inline.doorbell.take():
                    inline.deliver(message)
            [message] = inline.doorbell.take()
            barrier = Barrier(2)
            delivered = pool.submit(at_once, barrier, inline, message)
            barrier.wait(10)
            assert inline.rival.cancel(run_id)
            delivered.result(30)
            state = settled(inline, run_id)
            assert state.status == "cancelled"
            assert [one.path for one in state.steps if one.completed_at is None] == []
    inline.close()
