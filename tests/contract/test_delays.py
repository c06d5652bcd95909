"""A delay is a row with a time: near ones are published with a countdown, far ones by the keeper; no worker waits."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rival_workers import branch, delay_step, for_each
from tests.support.inline import Clock, Inline, opened


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def inline(file_url: str, clock: Clock) -> Iterator[Inline]:
    with opened(lambda: Inline(file_url, clock=clock)) as one:
        yield one


def before() -> str:
    return "before"


def after(steps) -> str:  # type: ignore[no-untyped-def]
    return f"after {steps.before.result}" if "before" in steps else "after"


def step_at(inline: Inline, run_id: str, path: str):  # type: ignore[no-untyped-def]
    return next(step for step in inline.rival.state(run_id).steps if step.path == path)


def test_a_near_delay_has_a_message_with_a_countdown_and_occupies_no_worker(inline: Inline, clock: Clock) -> None:
    inline.define("w", before, delay_step(seconds=20), after)
    run_id = inline.rival.run("w").run_id
    inline.drain()
    waiting = step_at(inline, run_id, "delay_20s")
    assert (waiting.status, waiting.executor, waiting.attempts) == ("waiting", None, 0)
    assert [message.countdown for _, message in inline.later] == [20]
    clock.advance(19.9)
    assert inline.drain() == []
    clock.advance(0.2)
    inline.drain()
    assert inline.rival.result(run_id).result == "after before"


def test_a_far_delay_is_published_by_the_keeper_when_it_is_due(inline: Inline, clock: Clock) -> None:
    inline.define("w", before, delay_step(days=3), after)
    run_id = inline.rival.run("w").run_id
    inline.drain()
    assert (inline.later, inline.doorbell.messages) == ([], [])
    clock.advance(3 * 86_400 - 60)
    inline.keeper.run_once()
    assert inline.drain() == []
    clock.advance(61)
    inline.keeper.run_once()
    inline.drain()
    assert inline.rival.result(run_id).result == "after before"


def test_a_delay_whose_message_is_lost_goes_on(inline: Inline, clock: Clock) -> None:
    inline.define("w", before, delay_step(seconds=20), after)
    run_id = inline.rival.run("w").run_id
    inline.drain()
    inline.later.clear()
    clock.advance(20 + inline.settings.ring_grace + 1)
    inline.keeper.run_once()
    inline.drain()
    assert inline.rival.state(run_id).status == "completed"


def test_a_message_that_comes_too_early_waits_for_its_time(inline: Inline, clock: Clock) -> None:
    inline.define("w", delay_step(seconds=20), after)
    run_id = inline.rival.run("w").run_id
    inline.drain()
    [(_, message)] = inline.later
    inline.deliver(message)
    assert step_at(inline, run_id, "delay_20s").status == "waiting"
    clock.advance(21)
    inline.drain()
    assert inline.rival.state(run_id).status == "completed"


def test_a_run_can_be_cancelled_while_it_is_delayed(inline: Inline, clock: Clock) -> None:
    inline.define("w", before, delay_step(seconds=20), after)
    run_id = inline.rival.run("w").run_id
    inline.drain()
    assert inline.rival.cancel(run_id)
    clock.advance(30)
    inline.keeper.run_once()
    inline.drain()
    state = inline.rival.state(run_id)
    assert (state.status, [step.status for step in state.steps]) == ("cancelled", ["completed", "cancelled"])


def test_a_delay_of_zero_seconds_is_not_a_delay(inline: Inline) -> None:
    inline.define("w", before, delay_step(seconds=0), after)
    run_id = inline.rival.run("w").run_id
    inline.drain()
    assert inline.rival.state(run_id).status == "completed"


def test_a_delay_may_stand_first_last_and_in_a_branch(inline: Inline, clock: Clock) -> None:
    def yes() -> bool:
        return True

    way = branch("late?", when=yes, then=[delay_step(seconds=10), after])
    inline.define("w", delay_step(seconds=5), way, delay_step(minutes=1))
    run_id = inline.rival.run("w").run_id
    for seconds, status in ((0, "suspended"), (5, "suspended"), (10, "suspended"), (61, "completed")):
        clock.advance(seconds)
        inline.keeper.run_once()
        inline.drain()
        assert inline.rival.state(run_id).status == status
    assert step_at(inline, run_id, "late?/delay_10s").status == "completed"


def test_every_item_of_a_for_each_has_a_delay_of_its_own(inline: Inline, clock: Clock) -> None:
    def items() -> list[int]:
        return [1, 2, 3]

    def double(item) -> int:  # type: ignore[no-untyped-def]
        return int(item * 2)

    inline.define("w", for_each("lines", items=items, do=[delay_step(seconds=10), double], concurrency=2))
    run_id = inline.rival.run("w").run_id
    inline.drain()
    assert len(inline.later) == 2
    clock.advance(10)
    inline.drain()
    assert inline.rival.state(run_id).status == "running"
    clock.advance(10)
    inline.drain()
    assert inline.rival.result(run_id).result == [2, 4, 6]
