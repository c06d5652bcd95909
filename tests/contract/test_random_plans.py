"""Any plan with any outcomes, run on the engine and by a reference that simply walks it: the same comes of both."""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rival_workers import StepError, branch, for_each, loop, parallel, step, workflow
from rival_workers.definition.define import define_workflow
from rival_workers.testing.world import migrated
from tests.support.effort import examples
from tests.support.inline import Clock, Inline


class Failed(Exception):
    """The reference's way of saying that something has failed for good."""


# A node is (kind, name, its parts…); the same tree is given to the engine and to the reference.
Node = tuple[Any, ...]
#: Makes a step of what it does and what it is called.
Leaf = Callable[[str, str], Any]


def nodes(depth: int) -> st.SearchStrategy[Any]:
    leaf = st.tuples(st.just("step"), st.sampled_from(["ok"] * 8 + ["skip", "soft", "hard"]))
    if depth == 0:
        return leaf
    body = st.lists(nodes(depth - 1), min_size=1, max_size=3)
    mode = st.sampled_from(["cancel", "wait", "continue"])
    return st.one_of(
        leaf,
        leaf,
        st.tuples(st.just("branch"), st.booleans(), body, st.one_of(st.just([]), body)),
        st.tuples(st.just("parallel"), mode, st.lists(body, min_size=1, max_size=3)),
        st.tuples(st.just("for_each"), mode, st.integers(0, 3), st.integers(1, 2), body),
        st.tuples(st.just("loop"), st.sampled_from(["until", "while", "count"]), st.integers(0, 3), body),
        st.tuples(st.just("workflow"), st.booleans(), body),
    )


# -- the reference ----------------------------------------------------------------------------------------


def walk(body: list[Node], prefix: str) -> Any:
    """The result of a body's last node; Failed when one fails."""
    result = None
    for position, node in enumerate(body):
        result = walk_node(node, f"{prefix}n{position}")
    return result


def walk_node(node: Node, name: str) -> Any:
    match node:
        case ("step", end):
            if end == "hard":
                raise Failed
            return name if end == "ok" else None
        case ("branch", answer, then, otherwise):
            chosen, ways = (then, "t") if answer else (otherwise, "o")
            return walk(chosen, f"{name}{ways}") if chosen else None
        case ("parallel", mode, ways):
            lanes = [lane(way, f"{name}w{n}") for n, way in enumerate(ways)]
            joined(mode, lanes)
            names = (f"{name}w{n}n{len(way) - 1}" for n, way in enumerate(ways))
            return dict(zip(names, (result for _, result in lanes), strict=True))
        case ("for_each", mode, count, _, body):
            lanes = [lane(body, f"{name}i") for _ in range(count)]
            joined(mode, lanes)
            return [result for _, result in lanes]
        case ("loop", mode, turns, body):
            turns = max(turns, mode != "while")
            results = [walk(body, f"{name}l") for _ in range(turns)]
            return results[-1] if results else None
        case ("workflow", propagates, body):
            failed, result = lane(body, f"{name}x")
            if failed and propagates:
                raise Failed
            return result
    raise AssertionError(node)


def lane(body: list[Node], prefix: str) -> tuple[bool, Any]:
    try:
        return False, walk(body, prefix)
    except Failed:
        return True, None


def joined(mode: str, lanes: list[tuple[bool, Any]]) -> None:
    if mode != "continue" and any(failed for failed, _ in lanes):
        raise Failed


# -- the same for the engine ------------------------------------------------------------------------------


def build(body: list[Node], prefix: str, leaf: Leaf) -> list[Any]:
    return [build_node(node, f"{prefix}n{position}", leaf) for position, node in enumerate(body)]


def build_node(node: Node, name: str, leaf: Leaf) -> Any:
    match node:
        case ("step", end):
            return leaf(end, name)
        case ("branch", answer, then, otherwise):
            return branch(
                name,
                when=lambda: answer,
                then=build(then, f"{name}t", leaf),
                otherwise=build(otherwise, f"{name}o", leaf),
            )
        case ("parallel", mode, ways):
            return parallel(name, [build(way, f"{name}w{n}", leaf) for n, way in enumerate(ways)], on_failure=mode)
        case ("for_each", mode, count, width, body):
            items = build(body, f"{name}i", leaf)
            return for_each(name, items=lambda: range(count), do=items, concurrency=width, on_failure=mode)
        case ("loop", mode, turns, body):
            most = max(turns, 1)
            ends: dict[str, Any] = {
                "until": {"until": lambda index: index + 1 >= turns},
                "while": {"while_": lambda index: index < turns},
                "count": {},
            }[mode]
            return loop(name, do=build(body, f"{name}l", leaf), max_iterations=most, **ends)
        case ("workflow", propagates, body):
            return workflow(define_workflow(name, build(body, f"{name}x", leaf)), propagate_failure=propagates)
    raise AssertionError(node)


def plain(end: str, name: str) -> Any:
    return step(function(end, name), name=name)


def function(end: str, name: str) -> Any:
    def run(state: Any) -> str | None:
        if end == "hard":
            raise ValueError("hard")
        if end == "soft":
            raise StepError("soft", behavior="continue")
        state.skipped = end == "skip"
        return name if end == "ok" else None

    return run


@pytest.fixture(scope="module")
def shared_file(tmp_path_factory: pytest.TempPathFactory) -> str:
    file = tmp_path_factory.mktemp("any") / "rival.db"
    file.write_bytes(migrated())
    return f"sqlite:///{file}"


@pytest.fixture(scope="module", params=[1.0, 0.0], ids=["in place", "by messages"])
def inline(request: pytest.FixtureRequest, shared_file: str) -> Iterator[Inline]:
    opened = Inline(shared_file, clock=Clock(), continuation_budget=request.param)
    yield opened
    opened.close()


def deliver_all(inline: Inline, order: random.Random) -> None:
    waiting = inline.doorbell.take()
    while waiting:
        inline.deliver(waiting.pop(order.randrange(len(waiting))))
        waiting += inline.doorbell.take()


@pytest.mark.slow
@settings(max_examples=examples(8), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(body=st.lists(nodes(2), min_size=1, max_size=4), seed=st.integers(0, 9))
def test_any_plan_with_any_outcomes_ends_as_the_reference_says(inline: Inline, body: list[Node], seed: int) -> None:
    failed, expected = lane(body, "")
    name = uuid.uuid4().hex
    inline.define(name, *build(body, "", plain))
    run_id = inline.rival.run(name).run_id
    deliver_all(inline, random.Random(seed))
    state = inline.rival.state(run_id)
    assert state.status == ("failed" if failed else "completed")
    assert state.result == (None if failed else expected)
    assert [found.path for found in state.steps if found.completed_at is None] == [], "nothing is left open"
