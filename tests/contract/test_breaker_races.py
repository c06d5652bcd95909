"""Races of steps that wait for a circuit breaker, on Postgres in forced order: with what closes, opens and sweeps it,
and with operators. No step is lost or called twice, and nothing deadlocks.
"""

from __future__ import annotations

import itertools
import os
import random
from collections import Counter
from collections.abc import Iterator

import psycopg
import pytest
from sqlalchemy import text

from rival_client.db import conflict_retries
from rival_client.db.database_urls import libpq_url
from rival_client.model.policies.breakers import Breaker
from rival_workers import step
from rival_workers.store.claim_records import Claim, Claimed
from tests.support.effort import examples
from tests.support.histories import assert_histories_are_complete
from tests.support.inline import Inline
from tests.support.interleaving import interleaved
from tests.support.workers import wait_until

SEED = int(os.environ.get("RIVAL_STRESS_SEED", "1"))
#: Statements of the longest operation.
STATEMENTS = 16
BREAKER = Breaker(name="b", failures=1, reset=3600, on_open="wait")
WAITING = ("r0", "r1", "r2")


class Waiting:
    """Runs whose step waits since an operator has opened the breaker, and one attempt that was called before that."""

    def __init__(self, url: str) -> None:
        self.inline = Inline(url, continuation_budget=0.0, ring_grace=0.001)
        self.rival, self.store, self.database = self.inline.rival, self.inline.store, self.inline.store.database
        self.calls: Counter[str] = Counter()
        self._numbers = itertools.count()
        self.inline.define("w", step(self._ask, name="ask", circuit_breaker=BREAKER.model_dump()))
        self.asked = self.claim("before")
        self.rival.open_breaker("b")
        for run_id in WAITING:
            self.rival.run("w", None, run_id)
            self.inline.drain()
        assert [self.status(run_id) for run_id in WAITING] == ["waiting_retry"] * 3

    def _ask(self, run: object) -> str:
        self.calls[run.run_id] += 1  # type: ignore[attr-defined]
        return "answer"

    def claim(self, run_id: str) -> Claim:
        """An attempt that runs."""
        self.rival.run("w", None, run_id)
        [message] = self.inline.doorbell.take()
        self.inline.deliver(message)
        [message] = self.inline.doorbell.take()
        return self._claimed(run_id, message.token)

    def _claimed(self, run_id: str, token: int) -> Claim:
        claimed = self.store.claim_step(Claim(run_id, "ask", token), None, self.inline.process.executor.id)
        assert isinstance(claimed, Claimed)
        return Claim(run_id, "ask", claimed.token)

    def claim_early(self, run_id: str) -> Claim:
        """A step that waits is claimed, since its own time has come, and has not asked yet."""
        return self._claimed(run_id, self._due(run_id))

    def status(self, run_id: str) -> str:
        [row] = self.rival.state(run_id).steps
        return row.status

    @property
    def queued(self) -> list[str]:
        return self._ids("SELECT run_id FROM rival_breaker_waits ORDER BY since, run_id")

    @property
    def called(self) -> list[str]:
        """Steps whose time has come."""
        due = "SELECT run_id FROM rival_steps WHERE status = 'waiting_retry' AND due_at <= now() ORDER BY run_id"
        return self._ids(due)

    def _ids(self, query: str) -> list[str]:
        with self.database.autocommit() as connection:
            return list(connection.scalars(text(query)))

    def deadlocks(self) -> int:
        with self.database.autocommit() as connection:
            query = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
            return int(connection.scalar(text(query)) or 0)

    # -- operations -----------------------------------------------------------------------------------------

    def close(self) -> None:
        self.rival.close_breaker("b")

    def reset(self) -> None:
        self.rival.reset_breaker("b")

    def open(self) -> None:
        """For so short a time that a step may probe."""
        self.rival.open_breaker("b", seconds=0)

    def sweep(self) -> None:
        self.store.sweep_breakers()

    def succeed(self) -> None:
        """A step that was called before has succeeded."""
        self.store.breaker_succeeded(BREAKER, self.asked, "executor")

    def arrive(self) -> None:
        """Another step asks, and waits if the breaker is open. Only its own messages are delivered: others may be in
        the hands of the other operation."""
        run_id = f"new{next(self._numbers)}"
        self.rival.run("w", None, run_id)
        for _ in range(2):
            [message] = [one for one in self.inline.doorbell.messages if one.run_id == run_id]
            self.inline.doorbell.messages.remove(message)
            self.inline.deliver(message)

    def ask(self) -> None:
        """The first one that waits asks again, since its own time has come."""
        self._deliver("r0")

    def ask_another(self) -> None:
        self._deliver("r1")

    def _deliver(self, run_id: str) -> None:
        version = next(iter(self.inline.registry)).version
        self.inline.coordinator.attempt(run_id, "ask", self._due(run_id), "w", version)

    def _due(self, run_id: str) -> int:
        """Its own time has come. Returns the token."""
        with self.database.transaction() as connection:
            early = "UPDATE rival_steps SET due_at = now() WHERE run_id = :id AND status = 'waiting_retry'"
            connection.execute(text(early), {"id": run_id})
        found = self.store.token_of(run_id, "ask")
        assert found is not None
        return found[1]

    def cancel(self) -> None:
        self.rival.cancel("r0")

    def pause(self) -> None:
        self.rival.pause("r0")

    def rewind(self) -> None:
        self.rival.rewind("r0", "ask")

    # -- the end --------------------------------------------------------------------------------------------

    def run_dry(self) -> None:
        """The breaker is closed, and what waits is called by others that succeed, or by the sweep."""
        self.rival.resume("r0")
        self.rival.close_breaker("b")
        self.store.hand_back_step(self.asked)
        wait_until(self._one_round, 30)
        states = {run_id: self.rival.state(run_id) for run_id in self._ids(ALL_RUNS)}
        ended = {run_id: state.status for run_id, state in states.items()}
        assert set(ended.values()) <= {"completed", "cancelled"}, ended
        assert {run_id for run_id, status in ended.items() if status == "cancelled"} <= {"r0"}
        self.store.sweep_breakers()
        assert self.queued == []
        assert_histories_are_complete(self.database)

    def _one_round(self) -> bool:
        """True: no run is open."""
        self.inline.keeper.run_once()
        self.inline.drain()
        self.store.sweep_breakers()
        return not self._ids("SELECT id FROM rival_runs WHERE completed_at IS NULL")


ALL_RUNS = "SELECT id FROM rival_runs ORDER BY id"


@pytest.fixture
def waiting(postgres_url: str) -> Iterator[Waiting]:
    made = Waiting(postgres_url)
    yield made
    made.inline.close()


def test_a_sweep_and_a_step_that_asks_do_not_deadlock(waiting: Waiting, monkeypatch: pytest.MonkeyPatch) -> None:
    """A step that runs and has not asked yet has a stale row: both delete it, and lock the breaker."""
    monkeypatch.setattr(conflict_retries, "CONFLICT_TRIES", 1)
    claim = waiting.claim_early("r0")
    with interleaved(
        waiting.database, "SELECT rival_breakers.name", lambda: waiting.store.ask_breaker(BREAKER, claim, "executor")
    ) as both:
        waiting.sweep()
    assert (both.has_begun, both.error) == (True, None)
    assert waiting.queued == ["r1", "r2"]
    waiting.store.hand_back_step(claim)
    waiting.run_dry()


def test_a_step_that_waits_again_while_a_sweep_removes_its_old_row_stays_in_the_queue(waiting: Waiting) -> None:
    """The sweep has seen that the step runs, and then it waits again. Without a row of the breaker, no lock orders
    them."""
    waiting.reset()
    claim = waiting.claim_early("r1")
    with interleaved(
        waiting.database,
        "DELETE FROM rival_breaker_waits",
        lambda: waiting.store.postpone_step(claim, 3600, "b", published=False),
    ) as both:
        waiting.sweep()
    assert (both.has_begun, both.error) == (True, None)
    assert waiting.status("r1") == "waiting_retry"
    assert "r1" in waiting.queued
    waiting.run_dry()


def test_a_step_that_begins_to_wait_while_the_breaker_is_closed_is_called_by_the_next_success(waiting: Waiting) -> None:
    """It was refused, and does not wait yet when the breaker closes: nothing calls it then."""
    with interleaved(waiting.database, "INSERT INTO rival_breaker_waits", waiting.close) as both:
        waiting.arrive()
    assert (both.has_begun, both.error) == (True, None)
    [new] = [run_id for run_id in waiting.queued if run_id.startswith("new")]
    assert (waiting.called, waiting.status(new)) == (["r0"], "waiting_retry")
    for _ in range(2):
        waiting.succeed()
    assert set(waiting.called) == {*WAITING, new}
    waiting.run_dry()


def test_the_sweep_calls_a_step_that_begins_to_wait_while_the_breaker_is_closed(waiting: Waiting) -> None:
    for run_id in WAITING:
        waiting.rival.cancel(run_id)
    with interleaved(waiting.database, "INSERT INTO rival_breaker_waits", waiting.close) as both:
        waiting.arrive()
    assert (both.has_begun, both.error, waiting.called) == (True, None, [])
    waiting.sweep()
    [new] = waiting.called
    assert new.startswith("new")


@pytest.mark.parametrize("how", ["close", "reset"])
def test_what_closes_the_breaker_passes_over_a_step_that_is_locked_and_the_sweep_calls_it(
    waiting: Waiting, how: str
) -> None:
    with psycopg.connect(libpq_url(waiting.database.url)) as other:
        other.execute("SELECT 1 FROM rival_steps WHERE run_id = 'r0' FOR UPDATE")
        getattr(waiting, how)()
        assert waiting.called == ["r1"]
        other.rollback()
    waiting.sweep()
    assert waiting.called == ["r0", "r1"]


def test_the_only_step_that_waits_is_called_by_the_sweep_if_it_was_locked(waiting: Waiting) -> None:
    for run_id in WAITING[1:]:
        waiting.rival.cancel(run_id)
    with psycopg.connect(libpq_url(waiting.database.url)) as other:
        other.execute("SELECT 1 FROM rival_steps WHERE run_id = 'r0' FOR UPDATE")
        waiting.close()
        other.rollback()
    assert waiting.called == []
    waiting.sweep()
    assert waiting.called == ["r0"]


def test_two_successes_at_one_moment_call_different_steps(waiting: Waiting) -> None:
    """Without a row of the breaker, no lock orders them."""
    waiting.arrive()
    waiting.reset()
    assert waiting.called == ["r0"]
    with interleaved(waiting.database, "DELETE FROM rival_breaker_waits", waiting.succeed) as both:
        waiting.succeed()
    assert (both.has_begun, both.error) == (True, None)
    assert len(waiting.called) == 4
    assert waiting.queued == []
    waiting.run_dry()


@pytest.mark.parametrize("verb", ["cancel", "pause", "rewind"])
def test_what_is_stopped_while_it_is_called_leaves_the_others_to_the_sweep(waiting: Waiting, verb: str) -> None:
    """The breaker is closed, not committed, and the verb waits for the row of the step."""
    with interleaved(waiting.database, "DELETE FROM rival_breaker_waits", getattr(waiting, verb)) as both:
        waiting.close()
    assert (both.has_begun, both.error) == (True, None)
    assert waiting.called == (["r0"] if verb == "pause" else [])
    waiting.sweep()
    assert "r1" in waiting.called
    waiting.run_dry()


def test_a_step_that_is_called_twice_is_claimed_once(waiting: Waiting) -> None:
    """By the breaker, and by its own time at the same moment."""
    with interleaved(waiting.database, "DELETE FROM rival_breaker_waits", waiting.ask) as both:
        waiting.close()
    assert (both.has_begun, both.error) == (True, None)
    waiting.run_dry()
    assert waiting.calls["r0"] == 1


FIRST = ("close", "reset", "open", "sweep", "succeed", "arrive", "ask")
SECOND = (*FIRST, "ask_another", "cancel", "pause", "rewind")


@pytest.mark.slow
def test_two_operations_at_any_interleaving_lose_no_step_and_do_not_deadlock(postgres_url: str) -> None:
    dice, crossed = random.Random(SEED), 0
    for _ in range(examples(30)):
        first, second, number = dice.choice(FIRST), dice.choice(SECOND), dice.randrange(STATEMENTS)
        try:
            crossed += crosses(postgres_url, first, second, number)
        except Exception as error:
            raise AssertionError(f"{first}, at its statement {number}: {second}") from error
        _empty(postgres_url)
    assert crossed > 5


def crosses(url: str, first: str, second: str, number: int) -> bool:
    """False: the first operation had fewer statements."""
    waiting = Waiting(url)
    try:
        before = waiting.deadlocks()
        with interleaved(waiting.database, number, getattr(waiting, second)) as both:
            getattr(waiting, first)()
        assert both.error is None, both.error
        assert waiting.deadlocks() == before
        waiting.run_dry()
        assert max(waiting.calls.values()) <= 1 + (second == "rewind")
    finally:
        waiting.inline.close()
    return both.has_begun


def _empty(url: str) -> None:
    with psycopg.connect(libpq_url(url)) as connection:
        for table in ("breaker_waits", "breakers", "breaker_failures", "steps", "runs", "history", "attempts"):
            connection.execute(f"DELETE FROM rival_{table}".encode())
