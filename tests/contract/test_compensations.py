"""Compensations: when a run is bound to fail, what it has done is undone, the last step first."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from rival_client.records import RunState
from rival_workers import StepError, step
from rival_workers.testing.clock import MOMENT
from tests.support.inline import Clock, Inline

Make = Callable[..., Inline]


@pytest.fixture(params=["sqlite", "sqlite by messages", "postgres", "postgres by messages"])
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


def settled(inline: Inline, run_id: str) -> RunState:
    inline.drain()
    return inline.rival.state(run_id)


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
    unwinding = next(one for one in state.steps if one.path == "!compensate")
    assert (unwinding.kind, unwinding.status) == ("unwinding", "completed")
    assert (unwinding.total, unwinding.opened, unwinding.remaining) == (3, 3, 0)
    assert {one.kind for one in state.steps if one.path.endswith("a!compensate")} == {"compensation"}
