"""Any plan whose steps can all be undone: when it has failed, whatever was done is undone; when it is retried after
that, each step of it has been done once more than it was undone.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rival_client.model.records import RunState
from rival_workers import step
from rival_workers.engine.paths import COMPENSATION
from rival_workers.testing.clock import MOMENT
from rival_workers.testing.world import migrated
from tests.contract.test_random_plans import Node, build, deliver_all, function, nodes
from tests.support.effort import examples
from tests.support.inline import Clock, Inline


class World:
    """What was done and undone, in order. Once it is mended nothing fails any more."""

    def __init__(self, clock: Clock, order: random.Random) -> None:
        self.calls: list[str] = []
        self.mended = False
        self._clock, self._order = clock, order

    def leaf(self, end: str, name: str) -> Any:
        return step(self._acting(end, name), name=name, compensate=self._undo)

    def _acting(self, end: str, name: str) -> Any:
        def act(run: Any, state: Any) -> Any:
            result = function("ok" if self.mended and end == "hard" else end, name)(state)
            self._note(run.step)
            return result

        return act

    def _undo(self, run: Any) -> None:
        self._note(run.step)
        if self._order.random() < 0.2:
            raise ValueError("cannot be undone")

    def _note(self, path: str) -> None:
        self._clock.advance(MOMENT)
        self.calls.append(path)

    def balance(self, path: str) -> int:
        """How often the step was done more than undone."""
        return self.calls.count(path) - self.calls.count(path + COMPENSATION)


@pytest.fixture(scope="module", params=[1.0, 0.0], ids=["in place", "by messages"])
def inline(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Inline]:
    file = tmp_path_factory.mktemp("any") / "rival.db"
    file.write_bytes(migrated())
    opened = Inline(f"sqlite:///{file}", clock=Clock(), continuation_budget=request.param)
    yield opened
    opened.close()


def in_failed_scope(state: RunState, path: str) -> bool:
    """The run has failed, or a workflow around the step that keeps its failure to itself: all others pass it on."""
    around = (one for one in state.steps if one.kind == "workflow" and path.startswith(f"{one.path}/"))
    kept = {one.path for one in state.steps if one.path + COMPENSATION in {row.path for row in state.steps}}
    return state.status == "failed" or any(one.status == "failed" and one.path in kept for one in around)


def assert_undone_where_it_must_be(world: World, state: RunState) -> None:
    completed = [one.path for one in state.steps if one.kind == "step" and one.status == "completed"]
    assert {path: world.balance(path) for path in completed} == {
        path: 0 if in_failed_scope(state, path) else 1 for path in completed
    }
    for unwinding in (one for one in state.steps if one.kind == "compensating" and one.status == "completed"):
        order = [world.calls.index(path + COMPENSATION) for path in unwinding.item]
        done = [max(n for n, path in enumerate(world.calls) if path == one) for one in unwinding.item]
        assert (sorted(order), sorted(done, reverse=True)) == (order, done), "one after the other, the last one first"
    assert [one.path for one in state.steps if one.completed_at is None] == [], "nothing is left open"


@pytest.mark.slow
@settings(max_examples=examples(6), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(body=st.lists(nodes(2), min_size=1, max_size=4), seed=st.integers(0, 9))
def test_any_plan_that_fails_is_undone_and_a_retry_does_each_step_once_more(
    inline: Inline, body: list[Node], seed: int
) -> None:
    assert inline.clock is not None
    order = random.Random(seed)
    world, name = World(inline.clock, order), uuid.uuid4().hex
    inline.define(name, *build(body, "", world.leaf))
    run_id = inline.rival.run(name).run_id
    deliver_all(inline, order)
    state = inline.rival.state(run_id)
    assert_undone_where_it_must_be(world, state)
    if state.status == "failed":
        world.mended = True
        inline.rival.retry(run_id)
        deliver_all(inline, order)
        state = inline.rival.state(run_id)
        assert state.status == "completed"
        done = [one.path for one in state.steps if one.kind == "step" and one.status == "completed"]
        assert {path: world.balance(path) for path in done if not in_failed_scope(state, path)} == {
            path: 1 for path in done if not in_failed_scope(state, path)
        }
        assert [one.path for one in state.steps if one.completed_at is None] == [], "nothing is left open"
