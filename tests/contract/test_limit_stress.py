"""Limits under random load on Postgres: never exceeded, nothing lost, no deadlock, no ticket that is overlooked; and
interleavings that a lock of the test forces. RIVAL_EFFORT tries more maxima, RIVAL_STRESS_SEED others.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import replace
from typing import Any

import psycopg
import pytest
from sqlalchemy import select, text

from rival_client.db.database_urls import libpq_url
from rival_client.db.run_tables import runs, steps
from rival_client.errors import RivalError
from rival_client.model.payload import Json
from rival_workers import flow, limit, rate, step
from rival_workers.engine.decisions import Retry
from rival_workers.store.claim_records import Claim, Claimed, Queued
from rival_workers.store.group_commits import ALONE, Commit
from tests.contract.stage import ERROR
from tests.support.effort import examples, long_but_first
from tests.support.inline import Inline
from tests.support.limits import OtherTransaction, Slots, assert_gates_are_consistent, expire, work
from tests.support.locks import until_blocked

#: Each thread carries out so many operations.
RUNS, THREADS, OPERATIONS = 40, 6, 30
SEED = int(os.environ.get("RIVAL_STRESS_SEED", "1"))
#: Operations that end or interrupt a running attempt.
OF_HOLDERS = ("finish", "take", "lose", "retry", "continue_as", "sleep")
#: All but the changes of a maximum.
ALL = (*OF_HOLDERS, "claim", "cancel", "pause", "rewind", "expire", "roll_back", "finish_together", "begin_together")
#: From one slot to several shards.
MAXIMA = [random.Random(SEED + number).randint(1, 40) for number in range(examples(1))]


@pytest.fixture
def slots(postgres_url: str) -> Iterator[Slots]:
    inline = Inline(postgres_url)
    yield Slots(inline)
    inline.close()


def deadlocks(slots: Slots) -> int:
    query = text("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()")
    with slots.database.autocommit() as connection:
        return int(connection.scalar(query) or 0)


class Load:
    """Random operations on the runs of one workflow."""

    def __init__(
        self, slots: Slots, seed: int, done: Counter[str], changed: Sequence[str] = (), *, is_flow: bool = False
    ) -> None:
        """`changed`: limits whose maximum changes meanwhile. `is_flow`: the step is one, which can start over. `done`:
        how often each operation was possible, in all threads."""
        self.slots, self.random, self.changed, self.is_flow = slots, random.Random(seed), changed, is_flow
        self.done = done

    def run(self, needed: Sequence[str] = ()) -> None:
        """`needed`: up to ten times as many operations, until each of these was possible."""
        for number in range(10 * OPERATIONS):
            others = [self.lose, self.retry, self.cancel, self.pause, self.rewind, self.expire, self.roll_back]
            others += [self.take, self.take, self.finish_together, self.finish_together, self.begin_together]
            others += [self.change] if self.changed else []
            others += [self.continue_as, self.sleep] if self.is_flow else []
            missing = [one for one in others if one.__name__ in needed and one.__name__ not in self.done]
            if number >= OPERATIONS and not missing:
                return
            acts = [self.claim] * 6 + [self.finish] * 4 + others
            act = self.random.choice(acts if number < OPERATIONS else [self.claim, *missing])
            # Suppressed: it is not in a status in which this is possible.
            with suppress(RivalError, AssertionError, KeyError):
                act(self.run_for(act.__name__))
                self.done[act.__name__] += 1

    def run_for(self, operation: str) -> str:
        """Any run, or one that holds a slot, if the operation needs one."""
        found: Sequence[str] = ()
        if operation in OF_HOLDERS:
            running = select(steps.c.run_id).where(steps.c.path == "work", steps.c.status == "running")
            with self.slots.database.autocommit() as connection:
                found = connection.scalars(running.order_by(steps.c.run_id)).all()
        return self.random.choice(found) if found else f"r{self.random.randrange(RUNS)}"

    def row(self, run_id: str) -> Any:
        with self.slots.database.autocommit() as connection:
            found = connection.execute(select(steps).where(steps.c.run_id == run_id, steps.c.path == "work")).first()
        assert found is not None
        return found

    def claim(self, run_id: str) -> None:
        self.slots.claim(run_id)

    def held(self, run_id: str) -> Claim:
        row = self.row(run_id)
        assert row.status == "running"
        return Claim(run_id, "work", row.execution_token)

    def finish(self, run_id: str) -> None:
        self.slots.running[run_id] = self.held(run_id)
        self.slots.finish(run_id)
        self.slots.inline.rival.rewind(run_id, "work")

    def take(self, run_id: str) -> None:
        """The finish also starts what gets the slot."""
        self.slots.running[run_id] = self.held(run_id)
        self.slots.finish(run_id, successor=self.slots.successor())
        self.slots.inline.rival.rewind(run_id, "work")

    def finish_together(self, run_id: str) -> None:
        found = (self.row(f"r{number}") for number in self.random.sample(range(RUNS), 12))
        held = [Claim(row.run_id, "work", row.execution_token) for row in found if row.status == "running"]
        after = self.random.choice([None, self.slots.successor()])
        self.commit([replace(self.slots.finishing(claim), successor=after) for claim in held])
        for claim in held:
            with suppress(RivalError):
                self.slots.inline.rival.rewind(claim.run_id, "work")

    def begin_together(self, run_id: str) -> None:
        names = [f"{run_id}-{self.random.random()}-{number}" for number in range(3)]
        for name in names:
            self.slots.inline.rival.run("w", {"k": self.random.randrange(5)}, run_id=name)
        self.commit([self.slots.beginning(name) for name in names])
        for name in names:
            # Suppressed: it runs, or waits, already.
            with suppress(AssertionError):
                self.slots.claim(name)

    def commit(self, commits: Sequence[Commit]) -> None:
        """As a worker does: together, and alone what does not fit."""
        store = self.slots.store
        fits = sorted((one for one in commits if store.can_group(one)), key=str)
        answers = store.commit_group(fits) if len(fits) > 1 else [ALONE] * len(fits)
        alone = [one for one, answer in zip(fits, answers, strict=True) if answer is ALONE]
        for one in [*alone, *(one for one in commits if one not in fits)]:
            one.apply(store)

    def lose(self, run_id: str) -> None:
        self.slots.store.take_over_step(self.held(run_id))

    def retry(self, run_id: str) -> None:
        self.slots.store.retry_step(self.held(run_id), Retry(0.0, ERROR), published=True)

    def continue_as(self, run_id: str) -> None:
        self.slots.store.continue_flow(self.held(run_id), Json("[1]"), None)

    def sleep(self, run_id: str) -> None:
        self.slots.store.suspend_step(self.held(run_id), None, 0.0)

    def cancel(self, run_id: str) -> None:
        self.slots.inline.rival.cancel(run_id)
        self.slots.inline.rival.retry(run_id)

    def pause(self, run_id: str) -> None:
        self.slots.inline.rival.pause(run_id)
        self.slots.inline.rival.resume(run_id)

    def rewind(self, run_id: str) -> None:
        """Of a step that runs, waits for a slot or has been granted one."""
        self.slots.inline.rival.rewind(run_id, "work")

    def expire(self, run_id: str) -> None:
        """Its queue timeout is over while it waits."""
        row = self.row(run_id)
        assert row.status == "waiting"
        assert expire(self.slots, run_id, row.timeout_token) is not None
        self.slots.inline.rival.retry(run_id)

    def roll_back(self, run_id: str) -> None:
        """A transaction that has had its effect, and is lost with its process."""
        other = OtherTransaction(self.slots)
        try:
            if self.row(run_id).status == "running":
                self.slots.running[run_id] = self.held(run_id)
                other.finish(run_id)
            else:
                other.claim(run_id)
            time.sleep(0.01)
        finally:
            other.connection.close()

    def change(self, run_id: str) -> None:
        self.slots.inline.rival.set_limit(self.random.choice(self.changed), self.random.choice([1, 2, 3, 7, 20]))


@pytest.mark.parametrize(
    "limits",
    [
        [limit("one", 1)],
        [limit("few", 3)],
        [limit("wide", 20)],
        [limit("two", 2), limit("each", 1, key="input.k")],
        [limit("flows", 3)],
        [limit("fair", 3, fair="input.k")],
        [rate("paced", 20, per=0.1, key="input.k")],
    ],
    ids=["one", "few", "sharded", "several", "flow", "fair", "rate"],
)
@pytest.mark.parametrize("changes", long_but_first(True, False), ids=["changing", "fixed"])
def test_random_load_never_exceeds_a_limit_and_loses_nothing(slots: Slots, limits: Any, changes: bool) -> None:
    carry_out(slots, limits, changes=changes, is_flow=limits[0].name == "flows")


@pytest.mark.parametrize("maximum", MAXIMA)
def test_random_load_of_flows_never_exceeds_a_random_limit_and_loses_nothing(slots: Slots, maximum: int) -> None:
    """All at once: lost connections, rollbacks, cancels, pauses, rewinds, takeovers, and flows that start over."""
    carry_out(slots, [limit("any", maximum)], changes=False, is_flow=True, needed=ALL)


def carry_out(slots: Slots, limits: Any, *, changes: bool, is_flow: bool, needed: Sequence[str] = ()) -> None:
    """`needed`: operations that must have been possible at least once; until then there are more of them."""
    changed = [one.name for one in limits] if changes else []
    function = flow("work", register=False)(lambda ctx: ctx.run.run_id) if is_flow else work
    kind = "rate_limit" if limits[0].is_rate else "concurrency_limit"
    slots.inline.define("w", step(function, max_attempts=1000, **{kind: limits}))
    for n in range(RUNS):
        slots.start(f"r{n}", {"k": n % 5})
    before = deadlocks(slots)
    stop, possible = threading.Event(), Counter[str]()

    def watch() -> None:
        while not stop.is_set():
            assert_gates_are_consistent(slots.database, drains=changes)

    with ThreadPoolExecutor(THREADS + 1) as pool:
        watching = pool.submit(watch)
        seeds = range(SEED * THREADS, (SEED + 1) * THREADS)
        done = [pool.submit(Load(slots, seed, possible, changed, is_flow=is_flow).run, needed) for seed in seeds]
        wait(done)
        stop.set()
        for one in done:
            one.result()
        watching.result()
    assert set(needed) <= possible.keys(), possible
    slots.store.sweep_gates(500)
    assert_gates_are_consistent(slots.database, at_rest=True, drains=changes)
    assert deadlocks(slots) == before
    _run_dry(slots)
    assert_gates_are_consistent(slots.database, at_rest=True)
    assert set(slots.used.values()) == {0}


def _run_dry(slots: Slots) -> None:
    """End all attempts and start all that waits, until every run has ended."""
    executor = slots.inline.process.executor.id
    for attempt in slots.store.running_on(executor):
        slots.store.hand_back_step(attempt.claim)
    end = time.monotonic() + 60
    while time.monotonic() < end:
        with slots.database.autocommit() as connection:
            open_steps = connection.execute(
                select(steps.c.run_id, steps.c.path, steps.c.execution_token).where(steps.c.completed_at.is_(None))
            ).all()
        if not open_steps:
            return
        definition = next(iter(slots.inline.registry))
        for row in open_steps:
            slots.inline.coordinator.attempt(row.run_id, row.path, row.execution_token, "w", definition.version)
        slots.inline.doorbell.take()
    with slots.database.autocommit() as connection:
        left = connection.execute(select(runs.c.id, runs.c.status).where(runs.c.completed_at.is_(None))).all()
    raise AssertionError(f"these runs did not end: {left}")


# -- forced -------------------------------------------------------------------------------------------------


@pytest.fixture
def holder(slots: Slots) -> Iterator[psycopg.Connection[Any]]:
    connection = psycopg.connect(libpq_url(slots.database.url))
    yield connection
    connection.close()


def test_a_newcomer_that_decides_to_wait_while_the_last_holder_leaves_is_not_overlooked(
    slots: Slots, holder: psycopg.Connection[Any]
) -> None:
    slots.inline.define("w", step(work, concurrency_limit=1))
    slots.hold("a")
    slots.start("b")
    holder.execute("SELECT 1 FROM rival_gates FOR UPDATE")
    with ThreadPoolExecutor(2) as pool:
        enters = pool.submit(slots.claim, "b")
        until_blocked(slots.database)
        leaves = pool.submit(slots.finish, "a")
        time.sleep(0.1)
        holder.rollback()
        assert isinstance(enters.result(10), Queued | Claimed)
        leaves.result(10)
    assert slots.waiting == []
    assert_gates_are_consistent(slots.database, at_rest=True)


def test_the_canceller_of_a_ticket_that_is_being_granted_gives_the_slot_on(
    slots: Slots, holder: psycopg.Connection[Any]
) -> None:
    slots.inline.define("w", step(work, concurrency_limit=1))
    slots.hold("a", "b", "c")
    # A grant of b that is not committed yet.
    gate = holder.execute("SELECT id FROM rival_gates FOR UPDATE").fetchone()
    assert gate is not None
    holder.execute(
        "UPDATE rival_tickets SET granted_at = now(), slot = %s, ring_at = now() + interval '10 s' WHERE run_id = 'b'",
        gate,
    )
    holder.execute("UPDATE rival_gates SET max = 2, used = 2")
    holder.execute("UPDATE rival_limits SET max = 2")
    with ThreadPoolExecutor(1) as pool:
        cancels = pool.submit(slots.inline.rival.cancel, "b")
        until_blocked(slots.database)
        holder.commit()
        assert cancels.result(10) is True
    assert slots.granted == ["c"]
    assert slots.used == {"w/work": 2}
    assert_gates_are_consistent(slots.database, at_rest=True)


def test_two_steps_that_want_two_limits_in_opposite_order_do_not_deadlock(slots: Slots) -> None:
    first, second = limit("first", 3), limit("second", 3)
    slots.inline.define("w", step(work, concurrency_limit=[first, second]))
    slots.inline.define("v", step(work, concurrency_limit=[second, first]))
    before = deadlocks(slots)

    def turns(workflow: str) -> None:
        for n in range(15):
            run_id = f"{workflow}{n}"
            slots.start(run_id, workflow=workflow)
            if isinstance(slots.claim(run_id, workflow=workflow), Claimed):
                slots.finish(run_id, workflow=workflow)

    with ThreadPoolExecutor(4) as pool:
        for one in [pool.submit(turns, name) for name in ("w", "v")]:
            one.result(60)
    assert deadlocks(slots) == before
    assert_gates_are_consistent(slots.database)


def test_a_ticket_that_was_skipped_is_found_by_the_sweep(slots: Slots, holder: psycopg.Connection[Any]) -> None:
    slots.inline.define("w", step(work, concurrency_limit=1))
    slots.hold("a", "b")
    holder.execute("SELECT 1 FROM rival_tickets WHERE run_id = 'b' FOR UPDATE")
    slots.finish("a")
    holder.rollback()
    assert (slots.waiting, slots.used) == (["b"], {"w/work": 0})
    assert [one.run_id for one in slots.store.sweep_gates(10)] == ["b"]
    assert slots.granted == ["b"]
