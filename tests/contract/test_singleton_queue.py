"""Starts that wait for the run with their singleton key (`on_conflict="queue"`), on every store."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import psycopg
import pytest
from sqlalchemy import select

from rival_client import AsyncRival, InvalidArgument, NotPossible, RivalError
from rival_client.db.database_urls import libpq_url
from rival_client.db.limit_tables import gates, tickets
from rival_workers import delay_step, limit, step
from tests.contract.test_run_times import go_on, pass_time, recorded, status
from tests.contract.test_shared_starts import REOPEN, waits
from tests.support.effort import examples
from tests.support.inline import Inline
from tests.support.limits import assert_gates_are_consistent
from tests.support.locks import until_blocked
from tests.support.output import whole


def queue(inline: Inline, run_id: str, **options: Any) -> str:
    return inline.rival.run("w", run_id, run_id=run_id, singleton="k", on_conflict="queue", **options).status


def records(inline: Inline) -> list[Any]:
    """The inputs of runs of "w", in the order in which the runs begin."""
    begun: list[Any] = []
    inline.define("w", step(lambda input: begun.append(input), name="a"))
    return begun


def statuses(inline: Inline, *run_ids: str) -> list[str]:
    return [status(inline, one) for one in run_ids]


def leftovers(inline: Inline) -> tuple[int, int]:
    """Slots in use, and tickets."""
    with inline.store.database.autocommit() as connection:
        used = sum(connection.scalars(select(gates.c.used)))
        return used, len(connection.execute(select(tickets.c.run_id)).all())


def place_of(inline: Inline, run_id: str) -> str | None:
    with inline.store.database.autocommit() as connection:
        return connection.exec_driver_sql(f"SELECT singleton FROM rival_runs WHERE id = '{run_id}'").scalar()


def test_queued_starts_run_one_after_the_other(inline: Inline) -> None:
    waits(inline)
    assert [queue(inline, one) for one in "abc"] == ["started", "queued", "queued"]
    inline.drain()
    assert statuses(inline, *"abc") == ["suspended", "pending", "pending"]
    assert (inline.rival.state("b").singleton, inline.rival.state("b").policies) == ("k", None)
    for running, nexts in (("a", "b"), ("b", "c")):
        pass_time(inline, 3600)
        go_on(inline)
        assert (status(inline, running), status(inline, nexts)) == ("completed", "suspended")
    pass_time(inline, 3600)
    go_on(inline)
    assert status(inline, "c") == "completed"
    assert leftovers(inline) == (0, 0)
    assert (None, "queued") in recorded(inline, "b")
    [started] = [one for one in inline.rival.history("b") if one.what == "started"]
    assert started.detail["options"] == {"singleton": "k"}


@pytest.mark.parametrize("first", ["return", "skip", "cancel"])
def test_a_queued_start_waits_for_a_run_that_was_started_another_way(inline: Inline, first: Any) -> None:
    waits(inline)
    inline.rival.run("w", 1, run_id="a", singleton="k", on_conflict=first)
    inline.drain()
    assert queue(inline, "b") == "queued"
    inline.drain()
    assert statuses(inline, "a", "b") == ["suspended", "pending"]
    inline.rival.cancel("a")
    go_on(inline)
    assert status(inline, "b") == "suspended"


def test_other_starts_find_the_run_that_has_waited_for_the_place(inline: Inline) -> None:
    waits(inline)
    queue(inline, "a")
    assert inline.rival.run("w", 1, singleton="k").run_id == "a"
    queue(inline, "b")
    inline.drain()
    inline.rival.cancel("a")
    go_on(inline)
    assert place_of(inline, "b") == "k"
    again = inline.rival.run("w", 2, singleton="k")
    assert (again.run_id, again.status) == ("b", "running")
    skipped = inline.rival.run("w", 3, singleton="k", on_conflict="skip")
    assert (skipped.status, skipped.instead_of) == ("skipped", "b")


@pytest.mark.parametrize("verb", ["cancel", "pause"])
def test_a_run_that_waits_can_leave_the_queue(inline: Inline, verb: str) -> None:
    waits(inline)
    for one in "abc":
        queue(inline, one)
    inline.drain()
    if verb == "pause":
        inline.rival.pause("b")
    else:
        inline.rival.cancel("b")
    inline.rival.cancel("a")
    go_on(inline)
    assert status(inline, "c") == "suspended"
    if verb == "pause":
        inline.rival.resume("b")
        go_on(inline)
        assert statuses(inline, "b", "c") == ["pending", "suspended"]
        inline.rival.cancel("c")
        go_on(inline)
        assert status(inline, "b") == "suspended"


def test_the_order_is_that_of_the_starts_and_not_of_their_messages(inline: Inline) -> None:
    waits(inline)
    queue(inline, "a")
    inline.drain()
    for one in "bcd":
        queue(inline, one)
        pass_time(inline, 1)
    for message in reversed(inline.doorbell.take()):
        inline.deliver(message)
    order = []
    for _ in range(3):
        inline.rival.cancel(next(run.run_id for run in inline.rival.runs() if run.status == "suspended"))
        go_on(inline)
        order += [run.run_id for run in inline.rival.runs() if run.status == "suspended"]
    assert order == ["b", "c", "d"]


def test_a_deadline_ends_a_run_that_waits(inline: Inline) -> None:
    waits(inline)
    queue(inline, "a")
    queue(inline, "b", deadline=60)
    inline.drain()
    pass_time(inline, 61)
    go_on(inline)
    assert statuses(inline, "a", "b") == ["suspended", "failed"]
    inline.rival.cancel("a")
    go_on(inline)
    assert leftovers(inline) == (0, 0)


def test_why_says_what_a_queued_run_waits_for_and_its_limit_cannot_be_changed(inline: Inline) -> None:
    waits(inline)
    queue(inline, "a")
    queue(inline, "b")
    inline.drain()
    [reason] = inline.rival.why("b").reasons
    assert (reason.what, reason.command) == ("limit", "rival limit show 'w!singleton' --key k")
    assert reason.text == "The run waits: another run of the workflow with its singleton key k runs, or is the next."
    with pytest.raises(
        InvalidArgument,
        match=whole("Invalid argument name: at most one run with a singleton key runs: this limit cannot be changed."),
    ):
        inline.rival.set_limit("w!singleton", 5)


def test_rules_of_the_run_and_limits_of_the_workflow_hold_too(inline: Inline) -> None:
    inline.define("w", step(lambda input: input, name="a"), delay_step(3600), concurrency_limit=limit(1))
    inline.rival.run("w", 1, run_id="x", policies=[("a", {"max_retries": 2})], singleton="k", on_conflict="queue")
    queue(inline, "y")
    inline.rival.run("w", 1, run_id="z")
    inline.drain()
    assert sorted(statuses(inline, *"xyz")) == ["pending", "pending", "suspended"]
    assert inline.rival.state("x").policies == {"rules": [{"match": {"name": "a"}, "options": {"max_retries": 2}}]} | {
        "mode": "merge"
    }
    for one in "xyz":
        inline.rival.cancel(one)
        go_on(inline)
    assert leftovers(inline) == (0, 0)


# -- several starts -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ids", [None, ["m0", "m1", "m2"]])
def test_run_many_makes_runs_that_wait_for_one_another(inline: Inline, ids: list[str] | None) -> None:
    waits(inline)
    with pytest.raises(
        InvalidArgument,
        match=whole(
            'Invalid argument singleton: only one of many runs could have it: give on_conflict="queue", so that '
            "they wait for one another."
        ),
    ):
        inline.rival.run_many("w", [1, 2], singleton="k")
    started = inline.rival.run_many("w", [1, 2, 3], run_ids=ids, singleton="k", on_conflict="queue")
    assert sorted(one.status for one in started) == ["queued", "queued", "started"]
    inline.drain()
    assert sorted(one.state().status for one in started) == ["pending", "pending", "suspended"]
    if ids is not None:
        again = inline.rival.run_many("w", [1, 2, 3], run_ids=ids, singleton="k", on_conflict="queue")
        assert [one.status for one in again] == ["running"] * 3


def test_ticks_of_a_schedule_wait_for_the_runs_before(inline: Inline) -> None:
    waits(inline)
    inline.rival.schedule("w", 60, name="s", singleton="nightly", on_conflict="queue", catch_up="all", input=1)
    past = "now() - interval '3 minutes'" if inline.store.database.is_postgres else "rival_now() - 180"
    with inline.store.database.transaction() as connection:
        connection.exec_driver_sql(f"UPDATE rival_schedules SET next_at = {past}")
    go_on(inline)
    go_on(inline)
    assert sorted({run.status for run in inline.rival.runs()}) == ["pending", "suspended"]
    assert len([run for run in inline.rival.runs() if run.status == "suspended"]) == 1


def test_the_same_start_again_finds_its_own_run(inline: Inline) -> None:
    waits(inline)
    assert [queue(inline, one) for one in ("a", "a", "b", "b")] == ["started", "running", "queued", "running"]


def test_a_start_in_the_transaction_of_the_producer_is_queued(postgres_url: str) -> None:
    inline = Inline(postgres_url)
    waits(inline)
    queue(inline, "a")
    with psycopg.connect(libpq_url(postgres_url)) as theirs:
        started = inline.rival.run("w", 2, run_id="b", singleton="k", on_conflict="queue", connection=theirs)
        assert started.status == "queued"
    go_on(inline)
    assert statuses(inline, "a", "b") == ["suspended", "pending"]
    inline.close()


def test_the_async_client_queues_starts(inline: Inline) -> None:
    waits(inline)

    async def start() -> list[str]:
        rival = AsyncRival(sync=inline.rival)
        first = await rival.run("w", 1, singleton="k", on_conflict="queue")
        second = await rival.run("w", 2, singleton="k", on_conflict="queue")
        many = await rival.run_many("w", [3], singleton="k", on_conflict="queue")
        return [first.status, second.status, many[0].status]

    assert asyncio.run(start()) == ["started", "queued", "queued"]


# -- operators ------------------------------------------------------------------------------------------------


def failed_with_place(inline: Inline) -> None:
    """`old` has failed at its second step; "new" waits a while in its second step."""
    inline.define(
        "w", step(lambda: 1, name="a"), step(lambda input: 1 / 0 if input == "old" else 1, name="b"), delay_step(3600)
    )
    queue(inline, "old")
    inline.drain()


@pytest.mark.parametrize("verb", REOPEN)
def test_a_run_that_is_opened_again_has_its_slot_again(inline: Inline, verb: str) -> None:
    failed_with_place(inline)
    REOPEN[verb](inline.rival)
    assert queue(inline, "new") == "queued"
    assert leftovers(inline) == (1, 0)
    inline.rival.pause("old")
    inline.drain()
    assert statuses(inline, "old", "new") == ["running", "pending"] or status(inline, "new") == "pending"
    inline.rival.cancel("old")
    go_on(inline)
    assert status(inline, "new") == "suspended"


@pytest.mark.parametrize("verb", REOPEN)
def test_a_run_is_not_opened_again_while_another_with_its_key_runs(inline: Inline, verb: str) -> None:
    failed_with_place(inline)
    queue(inline, "new")
    inline.drain()
    with pytest.raises(
        NotPossible,
        match=whole(
            "Cannot … run 'old': run 'new' has its singleton place 'k': wait for its end, or cancel it. Nothing "
            "was changed."
        ),
    ):
        REOPEN[verb](inline.rival)
    with inline.store.database.transaction() as connection:
        connection.exec_driver_sql("UPDATE rival_runs SET singleton = NULL WHERE id = 'new'")
    with pytest.raises(
        NotPossible,
        match=whole(
            "Cannot … run 'old': another run with its singleton key 'k' runs: wait for its end, or cancel it "
            "(`rival limit show 'w!singleton' --key 'k'` lists what runs and waits). Nothing was changed."
        ),
    ):
        REOPEN[verb](inline.rival)
    assert leftovers(inline) == (1, 0)


def test_a_run_that_was_cancelled_while_it_waited_waits_again_when_it_is_retried(inline: Inline) -> None:
    waits(inline)
    queue(inline, "a")
    queue(inline, "b")
    inline.drain()
    inline.rival.cancel("b")
    inline.rival.cancel("a")
    queue(inline, "c")
    go_on(inline)
    with pytest.raises(
        NotPossible,
        match=whole(
            "Cannot retry run 'a': run 'c' has its singleton place 'k': wait for its end, or cancel it. Nothing "
            "was changed."
        ),
    ):
        inline.rival.retry("a")
    inline.rival.retry("b")
    go_on(inline)
    assert statuses(inline, *"abc") == ["cancelled", "pending", "suspended"]


# -- races ----------------------------------------------------------------------------------------------------


def test_eight_producers_queue_and_one_run_runs(inline: Inline) -> None:
    waits(inline)
    barrier = threading.Barrier(8)

    def start(number: int) -> str:
        barrier.wait()
        return queue(inline, f"r{number}")

    with ThreadPoolExecutor(8) as pool:
        assert sorted(pool.map(start, range(8))) == ["queued"] * 7 + ["started"]
    inline.drain()
    assert sorted(run.status for run in inline.rival.runs()) == ["pending"] * 7 + ["suspended"]


@pytest.mark.parametrize("kept", [True, False])
def test_a_run_that_begins_does_not_wait_for_the_transaction_of_a_producer(postgres_url: str, kept: bool) -> None:
    inline = Inline(postgres_url)
    waits(inline)
    queue(inline, "a")
    queue(inline, "b")
    inline.drain()
    inline.rival.cancel("a")
    with psycopg.connect(libpq_url(postgres_url)) as theirs:
        inline.rival.run("w", 3, run_id="c", singleton="k", connection=theirs)
        go_on(inline)
        assert (status(inline, "b"), place_of(inline, "b")) == ("suspended", None)
        theirs.commit() if kept else theirs.rollback()
    go_on(inline)
    assert status(inline, "c") == "pending" if kept else len(inline.rival.runs()) == 2
    inline.rival.cancel("b")
    go_on(inline)
    assert not kept or status(inline, "c") == "suspended"
    inline.close()


@pytest.mark.parametrize("first", ["retry", "begin"])
def test_a_reopened_run_and_a_start_at_one_moment_do_not_both_run(postgres_url: str, first: str) -> None:
    inline = Inline(postgres_url)
    failed_with_place(inline)
    queue(inline, "new")
    with inline.store.database.transaction() as connection:
        # As if another start had taken its place meanwhile.
        connection.exec_driver_sql("UPDATE rival_runs SET singleton = NULL WHERE id = 'new'")
    verbs: dict[str, Callable[[], Any]] = {"retry": lambda: inline.rival.retry("old"), "begin": inline.drain}
    with ThreadPoolExecutor(2) as pool:
        with inline.store.database.transaction() as theirs:
            theirs.execute(select(gates).with_for_update())
            # Postgres gives the lock to the first that waits for it.
            one = pool.submit(verbs[first])
            until_blocked(inline.store.database)
            other = pool.submit(verbs["begin" if first == "retry" else "retry"])
            until_blocked(inline.store.database, 2)
        if first == "begin":
            one.result(20)
            with pytest.raises(
                NotPossible,
                match=whole(
                    "Cannot retry run 'old': another run with its singleton key 'k' runs: wait for its end, or cancel "
                    "it (`rival limit show 'w!singleton' --key 'k'` lists what runs and waits). Nothing was changed."
                ),
            ):
                other.result(20)
        else:
            one.result(20), other.result(20)
    assert ((None, "queued") in recorded(inline, "new")) == (first == "retry")
    assert ((None, "retry_run") in recorded(inline, "old")) == (first == "retry")
    assert statuses(inline, "old", "new") == ["failed", "suspended"]
    inline.close()


class Load:
    """Random starts, operators and workers, on the runs of two keys. Runs stay open until they are cancelled."""

    def __init__(self, inline: Inline, seed: int) -> None:
        self.inline, self.random, self.seed = inline, random.Random(seed), seed

    def run(self) -> None:
        verbs = (self.start, self.start, self.start, self.cancel, self.reopen, self.pause, self.work, self.work)
        for number in range(examples(40)):
            # Suppressed: it is not possible at this moment.
            with suppress(RivalError, IndexError):
                self.random.choice(verbs)(number)

    def start(self, number: int) -> None:
        how: Any = self.random.choice(["return", "skip", "cancel", "queue", "queue", "queue"])
        key = self.random.choice("kl")
        self.inline.rival.run("w", None, run_id=f"r{self.seed}-{number}", singleton=key, on_conflict=how)

    def chosen(self) -> str:
        return self.random.choice(self.inline.rival.runs(limit=1000)).run_id

    def cancel(self, number: int) -> None:
        self.inline.rival.cancel(self.chosen())

    def reopen(self, number: int) -> None:
        run_id = self.chosen()
        if self.random.random() < 0.5:
            self.inline.rival.retry(run_id)
        else:
            self.inline.rival.rewind(run_id, "a")

    def pause(self, number: int) -> None:
        run_id = self.chosen()
        self.inline.rival.pause(run_id)
        self.inline.rival.resume(run_id)

    def work(self, number: int) -> None:
        for message in self.inline.doorbell.take():
            self.inline.deliver(message)
        if number % 7 == 0:
            self.inline.keeper.run_once()


def keys_that_run(inline: Inline) -> list[str]:
    its_key = "policies ->> 'singleton'"
    begun = "started_at IS NOT NULL AND completed_at IS NULL AND status <> 'pending'"
    with inline.store.database.autocommit() as connection:
        return list(connection.exec_driver_sql(f"SELECT {its_key} FROM rival_runs WHERE {begun}").scalars())


def test_under_random_load_at_most_one_run_of_a_key_runs_and_none_is_lost(postgres_url: str) -> None:
    inline = Inline(postgres_url)
    waits(inline)
    with ThreadPoolExecutor(5) as pool:
        loads = [pool.submit(Load(inline, seed).run) for seed in range(4)]
        while not all(one.done() for one in loads):
            running = keys_that_run(inline)
            assert len(running) == len(set(running)), running
        for one in loads:
            one.result()
    # All that is left runs, one after the other.
    while open_runs := [run.run_id for run in inline.rival.runs(limit=1000) if not run.is_terminal]:
        for _ in range(20):
            inline.store.sweep_gates(100)
            go_on(inline)
        begun = [run_id for run_id in open_runs if inline.rival.state(run_id).started_at]
        assert begun
        for run_id in begun:
            inline.rival.cancel(run_id)
    assert_gates_are_consistent(inline.store.database, at_rest=True)
    inline.close()


# -- the order of the starts --------------------------------------------------------------------------------


def in_any_order(inline: Inline, seed: int) -> None:
    """Deliver all messages until there are none, each time in another order than they were published."""
    shuffled = random.Random(seed)
    while messages := inline.doorbell.take():
        shuffled.shuffle(messages)
        for one in messages:
            inline.deliver(one)


@pytest.mark.parametrize("seed", range(3))
def test_runs_begin_in_the_order_of_their_starts_however_their_messages_arrive(inline: Inline, seed: int) -> None:
    begun = records(inline)
    names = ["d", "b", "f", "a", "e", "c"]
    assert [queue(inline, one) for one in names] == ["started", *["queued"] * 5]
    in_any_order(inline, seed)
    assert statuses(inline, *names) == ["completed"] * 6
    assert begun == names
    assert leftovers(inline) == (0, 0)


@pytest.mark.parametrize("ids", [None, ["d", "b", "c", "a"]])
def test_runs_of_one_run_many_begin_in_the_order_of_its_inputs(inline: Inline, ids: Any) -> None:
    begun = records(inline)
    many = inline.rival.run_many("w", [0, 1, 2, 3], run_ids=ids, singleton="k", on_conflict="queue")
    assert [one.status for one in many] == ["started", "queued", "queued", "queued"]
    in_any_order(inline, 1)
    assert begun == [0, 1, 2, 3]


def test_a_start_that_finds_the_place_free_does_not_pass_those_that_wait(inline: Inline) -> None:
    """The run with the place has ended; those that wait have not begun yet."""
    waits(inline)
    queue(inline, "a")
    inline.drain()
    queue(inline, "b")
    inline.rival.cancel("a")
    inline.doorbell.take()
    inline.rival.run("w", 3, run_id="c", singleton="k")
    inline.drain()
    assert statuses(inline, "b", "c") == ["suspended", "pending"]


@pytest.mark.parametrize("leaves", ["cancel", "pause"])
def test_a_run_that_others_wait_for_before_it_has_begun_can_leave(inline: Inline, leaves: str) -> None:
    waits(inline)
    queue(inline, "a")
    [_] = inline.doorbell.take()
    queue(inline, "b")
    inline.drain()
    assert statuses(inline, "a", "b") == ["suspended", "pending"]
    queue(inline, "c")
    inline.rival.cancel("a")
    inline.doorbell.take()
    queue(inline, "d")
    getattr(inline.rival, leaves)("b")
    go_on(inline)
    go_on(inline)
    assert (status(inline, "c"), status(inline, "d")) == ("suspended", "pending")


def test_a_run_that_is_not_due_yet_does_not_keep_later_ones_waiting(inline: Inline) -> None:
    waits(inline)
    queue(inline, "a", delay=600)
    queue(inline, "b")
    inline.drain()
    assert statuses(inline, "a", "b") == ["pending", "suspended"]


def test_the_order_of_the_starts_needs_no_look_at_other_starts(inline: Inline) -> None:
    """One lookup in the index for the first run of the key, also when many of the same key wait."""
    if not inline.store.database.is_postgres:
        pytest.skip("the plan of Postgres")
    waits(inline)
    inline.rival.run_many("w", [0] * 500, singleton="k", on_conflict="queue")
    with inline.store.database.transaction() as connection:
        connection.exec_driver_sql("ANALYZE rival_runs")
        connection.exec_driver_sql("SET LOCAL enable_seqscan = off")
        plan = connection.exec_driver_sql(
            "EXPLAIN SELECT id FROM rival_runs WHERE workflow = 'w' AND (policies ->> 'singleton') = 'k'"
            " AND status = 'pending' AND policies IS NOT NULL"
            " ORDER BY coalesce(due_at, created_at), created_at, id LIMIT 1"
        )
        lines = [row[0] for row in plan]
    assert any("rival_runs_singleton_order" in line for line in lines), lines
    assert not any("Sort" in line for line in lines), lines
