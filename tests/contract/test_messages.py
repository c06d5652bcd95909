"""Messages of a run, delivered by hand on a clock that the test sets: retries, timeouts, lost and repeated messages."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from rival_client.broker.message import StepMessage
from rival_workers import StepError, step
from rival_workers.runtime.attempt.telemetry import counters
from tests.support.effort import examples
from tests.support.inline import Clock, Inline

Make = Callable[..., Inline]


@pytest.fixture
def make(file_url: str) -> Iterator[Make]:
    opened: list[Inline] = []

    def open_(**settings: Any) -> Inline:
        opened.append(Inline(file_url, clock=Clock(), **settings))
        return opened[-1]

    yield open_
    for inline in opened:
        inline.close()


def pass_time(inline: Inline, seconds: float) -> None:
    assert inline.clock is not None
    inline.clock.advance(seconds)


class Flaky:
    """Fails so many times, and counts."""

    def __init__(self, failures: int) -> None:
        self.failures, self.calls = failures, 0

    def __call__(self) -> int:
        self.calls += 1
        if self.calls <= self.failures:
            raise StepError("not yet", behavior="retry")
        return self.calls


def test_a_near_retry_is_published_with_a_countdown_and_runs_when_its_time_has_come(make: Make) -> None:
    inline, flaky = make(), Flaky(1)
    inline.define("w", step(flaky, name="flaky", max_attempts=2, base_delay=20))
    run = inline.rival.run("w")
    inline.drain()
    [(_, message)] = inline.later
    assert (message.path, message.attempt) == ("flaky", 2)
    assert 19 < message.countdown <= 20, "counted from the failure"
    pass_time(inline, 19)
    assert inline.drain() == []
    pass_time(inline, 1)
    inline.drain()
    assert inline.rival.result(run.run_id).result == 2


def test_a_retry_does_not_wait_longer_because_its_error_was_slow_to_write_down(make: Make) -> None:
    class Slow(Exception):
        def __str__(self) -> str:
            time.sleep(0.1)
            return "slow"

    def fail() -> None:
        raise Slow

    inline = make()
    inline.define("w", step(fail, max_retries=1, base_delay=20))
    inline.rival.run("w")
    inline.drain()
    [(_, message)] = inline.later
    assert 19 < message.countdown <= 19.9


def test_a_far_retry_stays_in_the_table_until_it_is_near(make: Make) -> None:
    inline, flaky = make(), Flaky(1)
    inline.define("w", step(flaky, name="flaky", max_attempts=2, base_delay=3600, max_delay=3600))
    run = inline.rival.run("w")
    inline.drain()
    assert inline.later == []
    pass_time(inline, 3590)
    assert inline.keeper.run_once().published == 0
    pass_time(inline, 6)
    assert inline.keeper.run_once().published == 1
    [message] = inline.doorbell.messages
    assert 3 < message.countdown <= 4
    assert inline.drain() == []
    pass_time(inline, 4)
    inline.drain()
    assert inline.rival.result(run.run_id).result == 2


def test_a_message_that_comes_too_early_is_published_again_for_the_rest_of_the_time(make: Make) -> None:
    inline, flaky = make(), Flaky(1)
    inline.define("w", step(flaky, name="flaky", max_attempts=2, base_delay=20))
    inline.rival.run("w")
    inline.drain()
    [(_, message)] = inline.later
    pass_time(inline, 5)
    inline.deliver(message)
    assert flaky.calls == 1
    [again] = inline.doorbell.messages
    assert 14.9 < again.countdown <= 15


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(examples(4)))
@pytest.mark.parametrize("budget", [1, 0], ids=["continuation", "message-per-attempt"])
def test_every_message_three_times_and_shuffled_changes_nothing(make: Make, budget: int, seed: int) -> None:
    inline, flaky, calls = make(continuation_budget=budget), Flaky(2), []
    inline.define(
        "w",
        step(lambda: calls.append("a"), name="a"),
        step(flaky, name="flaky", max_attempts=3, base_delay=0),
        step(lambda: calls.append("z"), name="z"),
    )
    runs = [inline.rival.run("w").run_id for _ in range(4)]
    flaky.failures = 0 if seed % 2 else 2
    dice, every = random.Random(seed), list[StepMessage]()
    while messages := inline.doorbell.take():
        every += messages
        delivered = [*messages * 3, *dice.sample(every, len(every))]
        dice.shuffle(delivered)
        for message in delivered:
            inline.deliver(message)
    assert [inline.rival.result(run_id).status for run_id in runs] == ["completed"] * 4
    assert (calls.count("a"), calls.count("z")) == (4, 4)
    assert flaky.calls == 4 + flaky.failures


def test_a_timeout_that_the_process_cannot_apply_itself_is_the_keepers(make: Make) -> None:
    inline = make()

    def overstays() -> str:
        pass_time(inline, 61)
        assert inline.keeper.run_once().timed_out == 1
        return "too late"

    inline.define("w", step(overstays, timeout=60))
    run = inline.rival.run("w")
    inline.drain()
    result = inline.rival.result(run.run_id)
    assert (result.status, result.failed_step, (result.error or {})["type"]) == ("failed", "overstays", "StepTimeout")
    assert [entry.what for entry in inline.rival.history(run.run_id)][2:] == [
        "timed_out",
        "failing",
        "failed",
        "late_result_refused",
    ]


def test_cancel_in_the_middle_of_a_step_refuses_its_result(make: Make) -> None:
    inline = make()

    def cancels(run: Any) -> str:
        assert inline.rival.cancel(run.run_id)
        return "too late"

    inline.define("w", cancels, step(lambda: 1, name="never"))
    run = inline.rival.run("w")
    inline.drain()
    state = inline.rival.state(run.run_id)
    assert (state.status, [s.status for s in state.steps]) == ("cancelled", ["cancelled"])
    assert [entry.what for entry in inline.rival.history(run.run_id)][2:] == ["cancelled", "late_result_refused"]


def test_a_lost_message_is_published_again_after_the_grace_and_not_before(make: Make) -> None:
    inline = make(ring_grace=10)
    inline.define("w", step(lambda: 1, name="one"))
    inline.doorbell.down = True
    run = inline.rival.run("w")
    inline.doorbell.down = False
    pass_time(inline, 9)
    assert inline.keeper.run_once().published == 0
    pass_time(inline, 2)
    assert inline.keeper.run_once().published == 1
    inline.drain()
    assert inline.rival.result(run.run_id).status == "completed"


def test_nothing_is_published_again_for_being_old_while_the_queue_has_a_backlog(make: Make) -> None:
    inline = make(ring_grace=10)
    inline.define("w", step(lambda: 1, name="one"))
    inline.rival.run_many("w", range(20))
    inline.doorbell.take()
    inline.doorbell.age = math.inf
    for _ in range(5):
        pass_time(inline, 700)
        done = inline.keeper.run_once()
        assert (done.published, done.still_queued) == (0, 20)
    inline.doorbell.age = 0.0
    pass_time(inline, 700)
    assert inline.keeper.run_once().published == 20


def test_after_broker_data_loss_everything_is_published_at_once(make: Make) -> None:
    inline = make(ring_grace=10)
    inline.define("w", step(lambda: 1, name="one"))
    runs = inline.rival.run_many("w", range(20))
    inline.doorbell.take()
    inline.doorbell.broker_lost_data = True
    done = inline.keeper.run_once()
    assert (done.broker_lost_data, done.published) == (True, 20)
    inline.drain()
    assert {inline.rival.result(run.run_id).status for run in runs} == {"completed"}


def test_a_run_is_parked_shortly_at_first_and_for_another_time_each_time(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    knows, knows_not = make(), make()
    knows.define("w", step(lambda: 1, name="one"))
    delays: list[float] = []
    park_run = knows_not.store.park_run

    def recorded(run_id: str, token: int, reason: str, delay: float, **how: Any) -> Any:
        delays.append(delay)
        return park_run(run_id, token, reason, delay, **how)

    monkeypatch.setattr(knows_not.store, "park_run", recorded)
    knows.rival.run("w")
    for _ in range(20):
        for message in knows.doorbell.take():
            knows_not.deliver(message)
        pass_time(knows, 16)
        knows.keeper.run_once()
    assert len(set(delays)) == len(delays) == 20
    assert all(most / 2 <= delay <= most for delay, most in zip(delays, [2, 4, 8, *[15] * 17], strict=True)), delays


def test_a_run_whose_version_no_worker_has_is_parked_until_a_worker_has_it(make: Make) -> None:
    parked_before = counters["parked"]
    knows, knows_not = make(), make()
    knows.define("w", step(lambda: 1, name="one"))
    run = knows.rival.run("w")
    [message] = knows.doorbell.take()
    knows_not.deliver(message)
    state = knows.rival.state(run.run_id)
    assert (state.status, state.parked) == ("pending", "worker does not have workflow 'w'")
    assert counters["parked"] == parked_before + 1, "it is counted"
    pass_time(knows, 16)
    assert knows.keeper.run_once().published == 1
    knows.drain()
    assert knows.rival.state(run.run_id).parked is None
    assert knows.rival.result(run.run_id).status == "completed"
