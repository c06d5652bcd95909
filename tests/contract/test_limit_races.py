"""Races of limits on Postgres, in forced order: one statement is carried out and not yet committed while the other one
comes. The statements are those of the fast paths."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from sqlalchemy import text, update

from rival_client.db.limit_tables import gates
from rival_client.db.run_tables import runs
from rival_client.model.limits.limit_shards import home_shard
from rival_client.model.payload import Json
from rival_workers import limit, rate, step
from rival_workers.engine import interpreter
from rival_workers.engine.decisions import End
from rival_workers.store.claim_records import Claimed, NotYet, Queued
from tests.support.inline import Inline
from tests.support.interleaving import interleaved
from tests.support.limits import OtherTransaction, Slots, assert_gates_are_consistent, expire, work
from tests.support.locks import until_blocked


@pytest.fixture
def slots(postgres_url: str) -> Iterator[Slots]:
    inline = Inline(postgres_url)
    yield Slots(inline)
    assert_gates_are_consistent(inline.store.database, at_rest=True)
    inline.close()


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(2) as pool:
        yield pool


def at_most(slots: Slots, maximum: int) -> None:
    slots.inline.define("w", step(work, concurrency_limit=limit("x", maximum)))


def test_a_finish_that_waits_for_an_arrival_lets_it_through(
    slots: Slots, other: OtherTransaction, pool: ThreadPoolExecutor
) -> None:
    at_most(slots, 1)
    slots.hold("a")
    slots.start("b")
    other.enter("b")
    finished = pool.submit(slots.finish, "a")
    until_blocked(slots.database)
    other.commit()
    assert [one.run_id for one in finished.result(10).grants] == ["b"]
    assert (slots.granted, slots.used) == (["b"], {"x": 1})
    assert isinstance(slots.claim("b"), Claimed)


def test_a_finish_that_waits_for_a_run_that_begins_lets_it_through(
    slots: Slots, other: OtherTransaction, pool: ThreadPoolExecutor
) -> None:
    at_most(slots, 1)
    slots.hold("a")
    other.begin("b")
    finished = pool.submit(slots.finish, "a")
    until_blocked(slots.database)
    other.commit()
    assert [one.run_id for one in finished.result(10).grants] == ["b"]
    assert (slots.run("b").status, slots.granted, slots.used) == ("suspended", ["b"], {"x": 1})
    assert isinstance(slots.claim("b"), Claimed)


def test_one_of_two_finishes_that_wait_for_an_arrival_lets_it_through(
    slots: Slots, other: OtherTransaction, pool: ThreadPoolExecutor
) -> None:
    """The first one frees a slot of a full gate, and looks at the queue again; the second one need not."""
    at_most(slots, 2)
    slots.hold("a", "b")
    slots.start("c")
    other.enter("c")
    finished = [pool.submit(slots.finish, name) for name in "ab"]
    until_blocked(slots.database, 2)
    other.commit()
    assert [grant.run_id for one in finished for grant in one.result(10).grants] == ["c"]
    assert (slots.granted, slots.used) == (["c"], {"x": 1})


def test_a_finish_looks_again_only_at_a_gate_that_was_full(slots: Slots, monkeypatch: pytest.MonkeyPatch) -> None:
    at_most(slots, 2)
    slots.hold("a", "b")
    looks: list[int] = []

    def look_again(gates: Any) -> tuple[Any, ...]:
        looks.append(len(gates))
        return ()

    monkeypatch.setattr(slots.store, "look_again", look_again)
    slots.finish("a")
    slots.finish("b")
    assert looks == [1, 0]


def test_an_arrival_that_waits_for_the_last_finish_starts_at_once(
    slots: Slots, other: OtherTransaction, pool: ThreadPoolExecutor
) -> None:
    at_most(slots, 1)
    slots.hold("a")
    slots.start("b")
    other.finish("a")
    claimed = pool.submit(slots.claim, "b")
    until_blocked(slots.database)
    other.commit()
    assert isinstance(claimed.result(10), Claimed)
    assert slots.used == {"x": 1}


def test_two_finishes_hand_their_slots_to_different_steps_without_waiting(
    slots: Slots, other: OtherTransaction
) -> None:
    at_most(slots, 2)
    slots.hold("a", "b", "c", "d")
    other.finish("a")
    assert [one.run_id for one in slots.finish("b").grants] == ["d"]
    other.commit()
    assert (sorted(slots.granted), slots.used) == (["c", "d"], {"x": 2})


# -- groups and rates ---------------------------------------------------------------------------------------


def test_an_arrival_of_a_group_waits_for_another_one_of_it_and_comes_a_turn_later(
    slots: Slots, other: OtherTransaction, pool: ThreadPoolExecutor
) -> None:
    slots.inline.define("w", step(work, concurrency_limit=limit("x", 1, fair="input.k")))
    slots.hold("a", input={"k": "a"})
    for name, group in (("b", "one"), ("c", "one"), ("d", "two")):
        slots.start(name, {"k": group})
    other.enter("b")
    queued = pool.submit(slots.claim, "c")
    until_blocked(slots.database)
    # What is of another group does not wait for them.
    assert isinstance(slots.claim("d"), Queued)
    other.commit()
    assert isinstance(queued.result(10), Queued)
    assert slots.waiting == ["b", "d", "c"]


def paced(slots: Slots) -> None:
    """`a` has started, `b` and `c` are called, and all of them have had their time."""
    slots.inline.define("w", step(work, rate_limit=rate("x", 1, per=60)))
    slots.hold("a", "b", "c")
    assert slots.granted == ["b", "c"]


def let_time_pass(slots: Slots) -> None:
    with slots.database.transaction() as connection:
        connection.execute(update(gates).values(next_start=gates.c.next_start - 60))


def test_a_start_that_waits_for_an_arrival_calls_it(
    slots: Slots, other: OtherTransaction, pool: ThreadPoolExecutor
) -> None:
    paced(slots)
    slots.start("d")
    let_time_pass(slots)
    other.enter("d")
    started = pool.submit(slots.claim, "b")
    until_blocked(slots.database)
    other.commit()
    assert isinstance(started.result(10), Claimed)
    assert (sorted(slots.granted), slots.used) == (["c", "d"], {"x": 2})
    assert [one.run_id for one in slots.inline.doorbell.take()][-1] == "d"


def test_of_two_starts_at_the_same_time_one_comes_too_early(
    slots: Slots, other: OtherTransaction, pool: ThreadPoolExecutor
) -> None:
    paced(slots)
    let_time_pass(slots)
    began = time.monotonic()
    other.claim("b")
    second = pool.submit(slots.claim, "c")
    until_blocked(slots.database)
    other.commit()
    answer = second.result(10)
    assert isinstance(answer, NotYet)
    assert began - time.monotonic() <= answer.seconds - 60 <= 0
    assert (slots.granted, slots.used) == (["c"], {"x": 1})


def test_an_arrival_that_waits_for_the_last_called_start_is_called_itself(
    slots: Slots, other: OtherTransaction, pool: ThreadPoolExecutor
) -> None:
    """The gate was full when the arrival came, and has room when it has locked it."""
    paced(slots)
    slots.start("d")
    let_time_pass(slots)
    other.claim("b")
    arrival = pool.submit(slots.claim, "d")
    until_blocked(slots.database)
    other.commit()
    assert isinstance(arrival.result(10), Queued)
    assert (sorted(slots.granted), slots.waiting, slots.used) == (["c", "d"], [], {"x": 2})


def test_a_start_that_is_rolled_back_is_not_counted(slots: Slots, other: OtherTransaction) -> None:
    paced(slots)
    slots.hold("d")
    let_time_pass(slots)
    other.claim("b")
    other.rollback()
    assert (slots.granted, slots.waiting, slots.used) == (["b", "c"], ["d"], {"x": 2})
    assert isinstance(slots.claim("b"), Claimed)
    assert (sorted(slots.granted), slots.used) == (["c", "d"], {"x": 2})


def test_arrivals_at_a_full_gate_do_not_wait_for_each_other(slots: Slots, other: OtherTransaction) -> None:
    at_most(slots, 1)
    slots.hold("a")
    for name in "bc":
        slots.start(name)
    other.enter("b")
    assert isinstance(slots.claim("c"), Queued)
    other.commit()
    assert sorted(slots.waiting) == ["b", "c"]


def test_an_arrival_does_not_wait_for_a_finish_that_hands_its_slot_on(slots: Slots, other: OtherTransaction) -> None:
    at_most(slots, 1)
    slots.hold("a", "b")
    slots.start("c")
    other.finish("a")
    assert isinstance(slots.claim("c"), Queued)
    other.commit()
    assert (slots.granted, slots.waiting) == (["b"], ["c"])


LEAVES = ("cancel", "pause", "rewind", "queue_timeout", "deadline")


@pytest.mark.parametrize("verb", LEAVES)
def test_what_leaves_the_queue_while_it_is_granted_gives_the_slot_on(
    slots: Slots, other: OtherTransaction, pool: ThreadPoolExecutor, verb: str
) -> None:
    at_most(slots, 1)
    slots.hold("a", "b", "c")
    other.finish("a")
    leaves = pool.submit(leave_queue, slots, verb)
    until_blocked(slots.database)
    other.commit()
    leaves.result(10)
    assert (slots.granted, slots.waiting, slots.used) == (["c"], [], {"x": 1})


def leave_queue(slots: Slots, verb: str) -> None:
    if verb == "queue_timeout":
        expire(slots, "b", slots.step("b")["timeout_token"])
    elif verb == "deadline":
        with slots.database.transaction() as connection:
            connection.execute(update(runs).where(runs.c.id == "b").values(deadline_at=runs.c.created_at))
        definition = next(iter(slots.inline.registry))
        slots.store.expire_run("b", interpreter.expired(definition.plan).with_options(definition.policies.at))
    else:
        getattr(slots.inline.rival, verb)("b", *(["work"] if verb == "rewind" else []))


@pytest.mark.parametrize("verb", LEAVES)
def test_a_finish_passes_over_what_is_just_leaving_the_queue(slots: Slots, other: OtherTransaction, verb: str) -> None:
    at_most(slots, 1)
    slots.hold("a", "b", "c")
    other.connection.execute("SELECT 1 FROM rival_tickets WHERE run_id = 'b' FOR UPDATE")
    assert [one.run_id for one in slots.finish("a").grants] == ["c"]
    other.rollback()
    leave_queue(slots, verb)
    assert (slots.granted, slots.waiting, slots.used) == (["c"], [], {"x": 1})


def test_the_sweep_grants_what_a_rolled_back_finish_had_granted(slots: Slots, other: OtherTransaction) -> None:
    at_most(slots, 2)
    slots.hold("a", "b", "c")
    claim = slots.running["a"]
    other.finish("a")
    slots.finish("b")
    other.rollback()
    slots.running["a"] = claim
    assert (slots.waiting, slots.used) == (["c"], {"x": 1})
    assert [one.run_id for one in slots.store.sweep_gates(10)] == ["c"]


def test_the_sweep_grants_what_a_killed_process_did_not_look_for_again(
    slots: Slots, other: OtherTransaction, pool: ThreadPoolExecutor
) -> None:
    at_most(slots, 1)
    slots.hold("a")
    slots.start("b")
    other.enter("b")
    killed = OtherTransaction(slots)
    finished = pool.submit(killed.finish, "a")
    until_blocked(slots.database)
    other.commit()
    finished.result(10)
    killed.commit()
    killed.connection.close()
    assert (slots.waiting, slots.used) == (["b"], {"x": 0})
    assert [one.run_id for one in slots.store.sweep_gates(10)] == ["b"]


def test_the_late_finish_of_an_attempt_that_was_taken_over_gives_nothing_back(slots: Slots) -> None:
    at_most(slots, 2)
    slots.hold("a", "b", "c")
    stale = slots.running["a"]
    slots.store.take_over_step(stale)
    assert (slots.granted, slots.used) == (["c"], {"x": 2})
    assert slots.finish("a") is None
    assert (slots.granted, slots.used) == (["c"], {"x": 2})


def test_a_finish_and_a_takeover_of_one_attempt_give_one_slot_back(
    slots: Slots, other: OtherTransaction, pool: ThreadPoolExecutor
) -> None:
    at_most(slots, 1)
    slots.hold("a", "b", "c")
    claim = slots.running["a"]
    other.finish("a")
    taken = pool.submit(slots.store.take_over_step, claim)
    until_blocked(slots.database)
    other.commit()
    assert taken.result(10) is None
    assert (slots.granted, slots.waiting, slots.used) == (["b"], ["c"], {"x": 1})


def test_a_stale_takeover_and_an_operator_do_not_wait_for_each_other(
    slots: Slots, other: OtherTransaction, pool: ThreadPoolExecutor
) -> None:
    """The takeover waits for the row of the step and keeps it locked, although its guard does not match any more."""
    slots.inline.define("w", step(work))
    slots.hold("a")
    claim, before = slots.running["a"], deadlocks(slots)
    other.connection.execute("UPDATE rival_steps SET execution_token = execution_token + 1 WHERE run_id = 'a'")
    taken = pool.submit(slots.store.take_over_step, claim)
    until_blocked(slots.database)
    cancelled = pool.submit(slots.inline.rival.cancel, "a")
    until_blocked(slots.database, 2)
    other.commit()
    assert taken.result(10) is None
    assert cancelled.result(10)
    assert deadlocks(slots) == before


def deadlocks(slots: Slots) -> int:
    with slots.database.autocommit() as connection:
        query = text("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()")
        return int(connection.scalar(query) or 0)


def test_two_messages_of_one_granted_step_start_it_once(
    slots: Slots, other: OtherTransaction, pool: ThreadPoolExecutor
) -> None:
    at_most(slots, 1)
    slots.hold("a", "b")
    slots.finish("a")
    other.claim("b")
    again = pool.submit(slots.claim, "b")
    until_blocked(slots.database)
    other.commit()
    assert again.result(10) is None
    assert (slots.status("b"), slots.used) == ("running", {"x": 1})


def test_a_limit_that_is_lowered_meanwhile_drains(slots: Slots) -> None:
    at_most(slots, 2)
    slots.hold("a", "b", "c", "d")
    slots.inline.rival.set_limit("x", 1)
    assert slots.finish("a").grants == ()
    assert (slots.used, slots.waiting) == ({"x": 1}, ["c", "d"])
    assert [one.run_id for one in slots.finish("b").grants] == ["c"]


def test_a_limit_that_is_raised_while_a_step_arrives_lets_it_through(
    slots: Slots, other: OtherTransaction, pool: ThreadPoolExecutor
) -> None:
    at_most(slots, 1)
    slots.hold("a")
    slots.start("b")
    other.enter("b")
    raised = pool.submit(slots.inline.rival.set_limit, "x", 2)
    until_blocked(slots.database)
    other.commit()
    raised.result(10)
    assert (slots.granted, slots.waiting, slots.used) == (["b"], [], {"x": 2})


def test_a_step_that_arrives_while_its_limit_is_raised_starts_at_once(
    slots: Slots, other: OtherTransaction, pool: ThreadPoolExecutor
) -> None:
    at_most(slots, 1)
    slots.hold("a")
    slots.start("b")
    other.connection.execute("UPDATE rival_limits SET max = 2")
    other.connection.execute("UPDATE rival_gates SET max = 2")
    claimed = pool.submit(slots.claim, "b")
    until_blocked(slots.database)
    other.commit()
    assert isinstance(claimed.result(10), Claimed)
    assert (slots.waiting, slots.used) == ([], {"x": 2})


def test_a_slot_of_another_shard_that_becomes_free_while_a_step_arrives_is_not_lost(slots: Slots) -> None:
    """Shards are not locked together, so one can become free while a step enters the queue of another one."""
    at_most(slots, 16)
    slots.hold(*(f"h{number}" for number in range(16)))
    slots.start("b")
    with slots.database.autocommit() as connection:
        home = connection.scalar(text("SELECT id FROM rival_gates WHERE shard = :n"), {"n": home_shard("b", "work", 2)})
    elsewhere = next(run_id for run_id in slots.running if slots.step(run_id)["slots"] != [home])
    with interleaved(slots.database, "INSERT INTO rival_tickets", lambda: slots.finish(elsewhere)) as both:
        claimed = slots.claim("b")
    assert both.has_begun
    assert both.error is None
    assert isinstance(claimed, Queued)
    assert (slots.granted, slots.waiting, slots.used) == (["b"], [], {"x": 16})


def test_a_finish_whose_next_step_finds_its_gate_locked_leaves_it_to_a_claim(
    slots: Slots, other: OtherTransaction
) -> None:
    first, second = (
        step(work, concurrency_limit=limit("x", 1)),
        step(work, name="then", concurrency_limit=limit("y", 1)),
    )
    slots.inline.define("w", first, second)
    slots.hold("a")
    slots.start("b")
    other.connection.execute("INSERT INTO rival_gates (name, key, max, touched_at) VALUES ('y', '', 1, now())")
    other.commit()
    other.connection.execute("SELECT 1 FROM rival_gates WHERE name = 'y' FOR UPDATE")
    claim, end = slots.running.pop("a"), End("completed", Json("null"))
    definition = next(iter(slots.inline.registry))
    advance = interpreter.advance(definition.plan, "work", end, "step").with_options(definition.policies.at)
    finished = slots.store.finish_step(claim, end, advance, claim_for=slots.inline.process.executor.id)
    assert finished is not None
    assert ([one.path for one in finished.opened], finished.claimed) == (["then"], None)
    other.rollback()
    assert slots.used == {"x": 0, "y": 0}


# -- a step that may not wait any longer --------------------------------------------------------------------


def test_a_step_that_starts_just_before_it_expires_goes_on(
    slots: Slots, other: OtherTransaction, pool: ThreadPoolExecutor
) -> None:
    at_most(slots, 1)
    slots.hold("a", "b", "c")
    slots.finish("a")
    token = slots.step("b")["timeout_token"]
    other.claim("b")
    expires = pool.submit(expire, slots, "b", token)
    until_blocked(slots.database)
    other.commit()
    assert expires.result(10) is None
    assert (slots.status("b"), slots.waiting, slots.used) == ("running", ["c"], {"x": 1})


def test_a_step_that_expires_just_before_it_starts_gives_its_slot_on(
    slots: Slots, other: OtherTransaction, pool: ThreadPoolExecutor
) -> None:
    at_most(slots, 1)
    slots.hold("a", "b", "c")
    slots.finish("a")
    other.connection.execute("SELECT 1 FROM rival_tickets WHERE run_id = 'b' FOR UPDATE")
    expires = pool.submit(expire, slots, "b", slots.step("b")["timeout_token"])
    until_blocked(slots.database)
    starts = pool.submit(slots.claim, "b")
    other.rollback()
    assert expires.result(10) is not None
    assert starts.result(10) is None
    assert (slots.status("b"), slots.granted, slots.used) == ("failed", ["c"], {"x": 1})
