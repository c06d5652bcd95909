"""The runs in hand of one process: outcomes are committed together, and no run waits for the slow step of another."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from sqlalchemy import text

from rival_client.errors import DatabaseUnavailable
from rival_workers import StepError, step
from rival_workers.runtime.attempt.runs_in_hand import RunInHand
from rival_workers.runtime.attempt.step_scheduler import PATIENCE, StepScheduler
from rival_workers.store.group_commits import Commit, FinishStep
from tests.support.inline import Inline
from tests.support.threads import join_all
from tests.support.workers import wait_until


class Hand:
    """A scheduler with threads, and the sizes of the groups that it has committed."""

    def __init__(self, inline: Inline, size: int) -> None:
        self.inline, self.sizes = inline, list[int]()
        self.scheduler = StepScheduler(inline.store, inline.coordinator.doorbell, size)
        self.threads = [threading.Thread(target=self.scheduler.work, daemon=True) for _ in range(size)]
        self._commit_group = inline.store.commit_group
        inline.store.commit_group = self._counted  # type: ignore[method-assign]

    def _counted(self, commits: Any) -> Any:
        self.sizes.append(len(commits))
        return self._commit_group(commits)

    def add(self, workflow: str, *run_ids: str, **about: Any) -> None:
        for run_id in run_ids:
            self.inline.rival.run(workflow, about or None, run_id=run_id)
            version = next(one.version for one in self.inline.registry if one.name == workflow)
            begins = self.inline.coordinator.beginning(run_id, 0, workflow, version)
            self.scheduler.add(RunInHand(begins, (workflow, version)))

    def start(self) -> None:
        threading.Thread(target=self.scheduler.watch, daemon=True).start()
        for thread in self.threads:
            thread.start()

    def wait_empty(self) -> None:
        wait_until(lambda: self.scheduler.in_hand == 0, 20, "an empty hand")

    def end(self) -> None:
        self.scheduler.end(len(self.threads))
        join_all(self.threads)

    def run(self, workflow: str, count: int) -> list[str]:
        run_ids = [f"{workflow}-{number}" for number in range(count)]
        self.add(workflow, *run_ids)
        self.start()
        self.wait_empty()
        return run_ids


@pytest.fixture
def inline(postgres_url: str) -> Iterator[Inline]:
    opened = Inline(postgres_url)
    yield opened
    assert opened.process.executor.running.all == set()
    assert opened.process.executor.running.claims_in_flight == 0
    opened.close()


@pytest.fixture
def make(inline: Inline) -> Iterator[Callable[..., Hand]]:
    made: list[Hand] = []

    def one(size: int = 8) -> Hand:
        made.append(Hand(inline, size))
        return made[-1]

    yield one
    for hand in made:
        hand.end()


def statuses(inline: Inline, run_ids: list[str]) -> Counter[str]:
    return Counter(inline.rival.result(run_id).status for run_id in run_ids)


def test_outcomes_of_the_runs_in_hand_are_committed_together(inline: Inline, make: Callable[..., Hand]) -> None:
    inline.define("w", *(step(lambda: 7, name=f"s{number}") for number in range(4)))
    hand = make()
    run_ids = hand.run("w", 8)
    assert statuses(inline, run_ids) == {"completed": 8}
    assert inline.rival.result("w-3").result == 7
    # Five commits of eight runs; a lone one counts as none of these.
    assert sum(hand.sizes) > 20
    assert len(hand.sizes) < 30


def test_a_slow_step_does_not_delay_other_runs(inline: Inline, make: Callable[..., Hand]) -> None:
    """It goes on only after the others have ended. First unknown, then known to be quick, then known to be slow."""
    others_ended = threading.Event()

    def waits(input: Any) -> None:
        if input["waits"]:
            assert others_ended.wait(15)

    inline.define("quick", step(lambda: 1, name="a"), step(lambda: 2, name="b"))
    inline.define("mixed", step(waits, name="a"))
    hand = make(4)
    hand.start()
    for number in range(3):
        if number == 1:
            for warm in range(40):
                hand.add("mixed", f"warm-{warm}", waits=False)
                hand.wait_empty()
        others_ended.clear()
        hand.add("mixed", f"slow-{number}", waits=True)
        hand.add("quick", f"one-{number}", f"two-{number}", f"three-{number}")
        wait_until(lambda: hand.scheduler.in_hand == 1, 10, "the end of the others")
        assert inline.rival.result(f"three-{number}").status == "completed"
        others_ended.set()
        hand.wait_empty()
        assert inline.rival.result(f"slow-{number}").status == "completed"


def test_a_run_that_comes_while_a_lone_run_hangs_does_not_wait_for_it(
    inline: Inline, make: Callable[..., Hand], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing watches the step of a lone run, which was quick so far, until another run comes."""
    hangs, goes_on = threading.Event(), threading.Event()

    def waits() -> None:
        hangs.set()
        assert goes_on.wait(15)

    inline.define("w", step(waits, name="a"))
    inline.define("quick", step(lambda: 1, name="a"))
    hand = make(3)
    monkeypatch.setattr(hand.scheduler._durations, "is_slow", lambda run: False)
    hand.start()
    hand.add("w", "slow")
    assert hangs.wait(10)
    assert not hand.scheduler._watch_needed.is_set()
    assert not any(one.is_slow for one in hand.scheduler._threads)
    hand.add("quick", "one")
    wait_until(lambda: hand.scheduler.in_hand == 1, 10, "the end of the other run")
    assert inline.rival.result("one").status == "completed"
    goes_on.set()
    hand.wait_empty()
    assert inline.rival.result("slow").status == "completed"


def test_a_step_that_is_known_to_be_slow_is_watched_no_longer(inline: Inline, make: Callable[..., Hand]) -> None:
    goes_on = threading.Event()
    inline.define("w", step(lambda: goes_on.wait(15) and None, name="a"))
    hand = make(3)
    hand.add("w", "one", "two")
    hand.start()
    wait_until(lambda: sum(one.is_slow for one in hand.scheduler._threads) == 2, 10, "two slow steps")
    wait_until(lambda: not hand.scheduler._watch_needed.is_set(), 10, "the end of the watch")
    for _ in range(5):
        hand.scheduler.look_for_slow(time.monotonic())
        assert not hand.scheduler._watch_needed.is_set()
    goes_on.set()
    hand.wait_empty()


def test_a_commit_that_is_made_alone_delays_no_other_run(
    inline: Inline, make: Callable[..., Hand], monkeypatch: pytest.MonkeyPatch
) -> None:
    """At once: the thread that notices slow steps does not run here."""
    commits, others_ended, begin_run = threading.Event(), threading.Event(), inline.store.begin_run

    def begins(run_id: str, *args: Any, **how: Any) -> Any:
        if run_id == "alone":
            commits.set()
            assert others_ended.wait(15)
        return begin_run(run_id, *args, **how)

    monkeypatch.setattr(inline.store, "begin_run", begins)
    inline.define("limited", step(lambda: 1, name="a", concurrency_limit=5))
    inline.define("quick", step(lambda: 2, name="a"))
    hand = make(2)
    for thread in hand.threads:
        thread.start()
    wait_until(lambda: len(hand.scheduler._threads) == 2 and hand.scheduler._active == 0, 10, "idle threads")
    hand.add("limited", "alone")
    assert commits.wait(10)
    hand.add("quick", "one", "two")
    wait_until(lambda: hand.scheduler.in_hand == 1, 10, "the end of the others")
    others_ended.set()
    hand.wait_empty()
    assert statuses(inline, ["alone", "one", "two"]) == {"completed": 3}


def test_as_many_slow_steps_as_threads_run_at_the_same_time(inline: Inline, make: Callable[..., Hand]) -> None:
    together = threading.Barrier(4)
    inline.define("w", step(lambda: together.wait(15), name="a"))
    assert statuses(inline, make(4).run("w", 4)) == {"completed": 4}


def test_async_steps_in_hand_share_one_loop(inline: Inline, make: Callable[..., Hand]) -> None:
    """Each waits for the others, with an event of their loop."""
    loops, all_there = set[asyncio.AbstractEventLoop](), asyncio.Event()
    arrived: list[int] = []

    async def meets() -> None:
        loops.add(asyncio.get_running_loop())
        arrived.append(1)
        if len(arrived) == 3:
            all_there.set()
        await asyncio.wait_for(all_there.wait(), 15)

    inline.define("w", step(meets, name="a"))
    assert statuses(inline, make(3).run("w", 3)) == {"completed": 3}
    assert len(loops) == 1


def test_failures_retries_and_composites_in_hand_take_the_single_path(
    inline: Inline, make: Callable[..., Hand]
) -> None:
    def fails() -> None:
        raise StepError("no", behavior="stop")

    def fails_once(run: Any) -> int:
        if run.attempt == 1:
            raise StepError("once", behavior="retry", max_attempts=2, backoff="none")
        return 5

    inline.define("fails", step(fails, name="a"), step(lambda: 1, name="b"))
    inline.define("retries", step(fails_once, name="a", base_delay=0.0), step(lambda: 6, name="b"))
    inline.define("fine", step(lambda: 1, name="a"))
    hand = make(6)
    hand.add("fails", "f1", "f2")
    hand.add("retries", "r1", "r2")
    hand.add("fine", "g1", "g2")
    hand.start()
    hand.wait_empty()
    inline.drain()
    assert statuses(inline, ["f1", "f2", "r1", "r2", "g1", "g2"]) == {"failed": 2, "completed": 4}


def test_a_lost_answer_is_resolved_by_each_run(inline: Inline, make: Callable[..., Hand]) -> None:
    """The group was committed. Each run finds that out by its token, and its next step starts once."""
    calls: Counter[str] = Counter()
    inline.define("w", step(lambda run: calls.update([run.run_id]), name="a"), step(lambda: 2, name="b"))
    hand = make()
    real, lost = inline.store.commit_group, list[int]()

    def commit_group(commits: Sequence[Commit]) -> list[Any]:
        answers = real(commits)
        if not lost and any(hasattr(one, "claim") for one in commits):
            lost.append(len(commits))
            raise DatabaseUnavailable("the answer was lost")
        return answers

    inline.store.commit_group = commit_group  # type: ignore[method-assign]
    run_ids = hand.run("w", 6)
    assert lost
    for _ in range(4):
        inline.process.executor.hand_back_strays()
        inline.drain()
    assert statuses(inline, run_ids) == {"completed": 6}
    assert set(calls.values()) == {1}


def test_a_group_that_was_not_committed_is_repeated_by_each_run(inline: Inline, make: Callable[..., Hand]) -> None:
    inline.define("w", step(lambda: 1, name="a"), step(lambda: 2, name="b"))
    hand = make()
    real, failed = inline.store.commit_group, list[int]()

    def commit_group(commits: Sequence[Commit]) -> list[Any]:
        if len(failed) < 2 and all(hasattr(one, "claim") for one in commits):
            failed.append(len(commits))
            raise DatabaseUnavailable("away")
        return real(commits)

    inline.store.commit_group = commit_group  # type: ignore[method-assign]
    run_ids = hand.run("w", 6)
    assert failed
    inline.drain()
    assert statuses(inline, run_ids) == {"completed": 6}


@pytest.mark.parametrize("verb", ["cancel", "pause"])
def test_an_operator_stops_one_run_of_a_group(inline: Inline, make: Callable[..., Hand], verb: str) -> None:
    """Between the end of its function and the commit of the group."""
    inline.define("w", step(lambda: 1, name="a"), step(lambda: 2, name="b"))
    hand = make()
    real, done = inline.store.commit_group, list[int]()

    def commit_group(commits: Sequence[Commit]) -> list[Any]:
        if not done and any(isinstance(one, FinishStep) and one.claim.run_id == "w-2" for one in commits):
            done.append(1)
            getattr(inline.rival, verb)("w-2")
        return real(commits)

    inline.store.commit_group = commit_group  # type: ignore[method-assign]
    run_ids = hand.run("w", 5)
    if verb == "pause":
        assert {run.status for run in inline.rival.runs() if run.run_id == "w-2"} <= {"running", "suspended"}
        inline.rival.resume("w-2")
        inline.drain()
    assert done
    expected = {"completed": 5} if verb == "pause" else {"completed": 4, "cancelled": 1}
    assert statuses(inline, run_ids) == expected


def test_the_ends_of_a_group_are_published_at_once(inline: Inline, make: Callable[..., Hand]) -> None:
    inline.define("w", step(lambda: 1, name="a"))
    hand, published = make(), list[list[str]]()
    real = inline.coordinator.doorbell.publish

    def publish(messages: Any, changed: Any = ()) -> bool:
        if changed:
            published.append(list(changed))
        return bool(real(messages, changed))

    inline.coordinator.doorbell.publish = publish  # type: ignore[method-assign]
    run_ids = hand.run("w", 8)
    assert sorted(run_id for one in published for run_id in one) == sorted(run_ids)
    assert max(map(len, published)) > 1


def test_nothing_is_published_that_has_no_content(inline: Inline, make: Callable[..., Hand]) -> None:
    """Steps that the process continues with need no message, and the ends of a group share one notification."""
    inline.define("w", *(step(lambda: 1, name=f"s{number}") for number in range(4)))
    hand, published = make(), list[tuple[int, int]]()
    run_ids = [f"w-{number}" for number in range(8)]
    hand.add("w", *run_ids)
    real = inline.coordinator.doorbell.publish

    def publish(messages: Any, changed: Any = ()) -> bool:
        published.append((len(messages), len(changed)))
        return bool(real(messages, changed))

    inline.coordinator.doorbell.publish = publish  # type: ignore[method-assign]
    hand.start()
    hand.wait_empty()
    assert statuses(inline, run_ids) == {"completed": 8}
    assert {messages for messages, _ in published} == {0}
    assert sum(changed for _, changed in published) == 8
    assert all(changed for _, changed in published)


def test_a_process_that_stops_ends_what_is_in_hand(inline: Inline, make: Callable[..., Hand]) -> None:
    """The steps that run end and are committed; what follows is left to messages."""
    begun, goes_on = threading.Event(), threading.Event()

    def waits() -> int:
        begun.set()
        assert goes_on.wait(15)
        return 1

    inline.define("w", step(waits, name="a"), step(lambda: 2, name="b"))
    hand = make(2)
    hand.add("w", "r")
    hand.start()
    assert begun.wait(10)
    inline.process.stop_continuing()
    hand.scheduler.end(2)
    goes_on.set()
    hand.end()
    assert inline.store.token_of("r", "a")[0] == "completed"  # type: ignore[index]
    assert inline.store.token_of("r", "b")[0] == "pending"  # type: ignore[index]
    inline.coordinator.stopping = False
    inline.drain()
    assert inline.rival.result("r").status == "completed"


def test_a_step_is_slow_when_it_has_run_for_too_long(inline: Inline) -> None:
    scheduler = StepScheduler(inline.store, inline.coordinator.doorbell, 2)
    thread = threading.Thread(target=scheduler.work, daemon=True)
    thread.start()
    wait_until(lambda: scheduler._threads)
    [own] = scheduler._threads
    wait_until(lambda: scheduler._active == 0)
    own.since = time.monotonic()
    scheduler.look_for_slow(own.since - PATIENCE)
    assert not own.is_slow
    scheduler.look_for_slow(own.since + PATIENCE)
    assert own.is_slow
    own.since = None
    scheduler.end(1)
    join_all([thread])


def test_no_transaction_is_open_while_steps_run(inline: Inline, make: Callable[..., Hand]) -> None:
    seen: list[int] = []
    busy = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND state LIKE 'idle in%'"

    def look() -> None:
        with inline.store.database.autocommit() as connection:
            seen.append(connection.scalar(text(busy)) or 0)

    inline.define("w", step(look, name="a"))
    make().run("w", 4)
    assert seen == [0] * 4
