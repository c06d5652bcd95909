"""Lanes that end at the same moment, on Postgres: each join fires once, whatever the others do meanwhile."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from rival_workers import StepError, for_each, parallel, step, workflow
from rival_workers.definition.define import define_workflow
from tests.support.inline import Inline

pytestmark = pytest.mark.slow
LANES = 6


@pytest.fixture
def inline(postgres_url: str) -> Iterator[Inline]:
    """By messages, so that all lanes can be open before any of them is claimed."""
    opened = Inline(postgres_url, continuation_budget=0.0)
    yield opened
    opened.close()


class Together:
    """Steps that end at the same moment: each waits until all that were started are there."""

    def __init__(self, count: int) -> None:
        self._barrier = threading.Barrier(count)
        self.calls: Counter[str] = Counter()

    def step(self, name: str, what: Callable[[], Any] = lambda: None) -> Any:
        def run_together() -> Any:
            self._barrier.wait(10)
            return what()

        return step(run_together, name=name)

    def count(self, name: str) -> Any:
        def counted() -> int:
            self.calls[name] += 1
            return self.calls[name]

        return step(counted, name=name)


def boom() -> None:
    raise ValueError("boom")


def deliver_at_once(inline: Inline) -> None:
    """Delivers all messages, each in a thread of its own, until none is left."""
    with ThreadPoolExecutor(LANES * 2) as threads:
        while messages := inline.doorbell.take():
            for done in [threads.submit(inline.deliver, message) for message in messages]:
                done.result(30)


def statuses(inline: Inline, run_id: str) -> dict[str, str]:
    return {found.path: found.status for found in inline.rival.state(run_id).steps}


@pytest.mark.parametrize("turn", range(3))
def test_lanes_that_end_together_join_once(inline: Inline, turn: int) -> None:
    together = Together(LANES)
    lanes = [together.step(f"lane{n}", lambda n=n: n) for n in range(LANES)]  # type: ignore[misc]
    inline.define("w", step(lambda: 0, name="first"), parallel("all", lanes), together.count("after"))
    run_id = begin(inline, "w")
    deliver_at_once(inline)
    state = inline.rival.state(run_id)
    assert (state.status, together.calls["after"]) == ("completed", 1)
    assert {found.path: found.result for found in state.steps}["all"] == {f"lane{n}": n for n in range(LANES)}


def begin(inline: Inline, workflow_name: str) -> str:
    """Up to the moment at which all lanes are open and none has been claimed."""
    run_id = inline.rival.run(workflow_name).run_id
    while len(inline.doorbell.messages) < LANES:
        for message in inline.doorbell.take():
            inline.deliver(message)
    return run_id


@pytest.mark.parametrize("mode", ["cancel", "wait", "continue"])
@pytest.mark.parametrize("turn", range(3))
def test_lanes_that_fail_together_fail_their_composite_once(inline: Inline, mode: Any, turn: int) -> None:
    together = Together(LANES)
    handled: Counter[str] = Counter()

    def report(failed_step: Any) -> None:
        handled[failed_step.step_name] += 1

    lanes = [together.step(f"lane{n}", boom) for n in range(LANES)]
    inline.define("w", parallel("all", lanes, on_failure=mode, on_error=report), together.count("after"))
    run_id = begin(inline, "w")
    deliver_at_once(inline)
    state = inline.rival.state(run_id)
    ends = Counter(found.status for found in state.steps if "/" in found.path)
    assert not {found.path for found in state.steps if found.completed_at is None}
    if mode == "continue":
        assert (state.status, together.calls["after"], handled) == ("completed", 1, Counter())
        return
    assert (state.status, together.calls["after"]) == ("failed", 0)
    assert sum(handled.values()) == 1, "one failure, one handler"
    assert ends["failed"] == LANES if mode == "wait" else ends["failed"] + ends["cancelled"] == LANES


@pytest.mark.parametrize("turn", range(3))
def test_a_failure_that_cancels_leaves_nothing_open_of_lanes_that_go_on_meanwhile(inline: Inline, turn: int) -> None:
    together = Together(LANES)
    ways = [
        [together.step(f"lane{n}", boom if n == 0 else (lambda: 1)), together.count(f"then{n}")] for n in range(LANES)
    ]
    inline.define("w", parallel("all", ways))
    run_id = begin(inline, "w")
    deliver_at_once(inline)
    found = statuses(inline, run_id)
    assert inline.rival.state(run_id).status == "failed"
    assert set(found.values()) <= {"completed", "failed", "cancelled"}, found
    assert found["all"] == "failed"


def test_items_that_end_together_take_the_next_ones_once_each(inline: Inline) -> None:
    seen: Counter[int] = Counter()
    lock = threading.Lock()

    def work(item: int) -> int:
        with lock:
            seen[item] += 1
        if item % 7 == 3:
            raise StepError("never mind", behavior="continue")
        return item

    inline.define("w", for_each("all", items=lambda: range(60), do=[work], concurrency=LANES), step(boom, name="end"))
    run_id = begin(inline, "w")
    deliver_at_once(inline)
    state = inline.rival.state(run_id)
    assert seen == Counter(range(60))
    assert {found.path: found.result for found in state.steps}["all"] == [None if n % 7 == 3 else n for n in range(60)]
    assert state.failed_step == "end"


def test_a_nested_workflow_in_each_of_many_lanes_ends_once(inline: Inline) -> None:
    together = Together(LANES)
    nested = [workflow(define_workflow(f"n{n}", [together.step("a"), together.count(f"b{n}")])) for n in range(LANES)]
    inline.define("w", parallel("all", nested), together.count("after"))
    run_id = begin(inline, "w")
    deliver_at_once(inline)
    assert inline.rival.state(run_id).status == "completed"
    assert together.calls == Counter({"after": 1, **{f"b{n}": 1 for n in range(LANES)}})


def test_cancelling_a_run_while_its_lanes_end_leaves_one_truth(inline: Inline) -> None:
    together = Together(LANES + 1)
    ways = [[together.step(f"lane{n}"), together.count(f"then{n}")] for n in range(LANES)]
    inline.define("w", parallel("all", ways), together.count("after"))
    run_id = begin(inline, "w")

    def cancel() -> bool:
        together._barrier.wait(10)
        return inline.rival.cancel(run_id)

    with ThreadPoolExecutor(1) as thread:
        cancelled = thread.submit(cancel)
        deliver_at_once(inline)
        assert inline.rival.state(run_id).status == ("cancelled" if cancelled.result(10) else "completed")
    assert set(statuses(inline, run_id).values()) <= {"completed", "cancelled"}
