"""The commit that ends a run at a full gate also starts the step that gets its slot. Races of it on Postgres, in forced
order: one statement is carried out and not yet committed while the other one comes."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from rival_client.db.locks import RUN_LOCK
from rival_workers import limit, step
from rival_workers.engine import interpreter
from rival_workers.engine.decisions import End
from rival_workers.store.claim_records import Claim, Queued
from tests.contract.stage import ERROR
from tests.contract.test_lost_commit_replies import lose_answer
from tests.support.inline import Inline
from tests.support.limits import OtherTransaction, Slots, assert_gates_are_consistent, work
from tests.support.locks import until_blocked


@pytest.fixture
def slots(postgres_url: str) -> Iterator[Slots]:
    inline = Inline(postgres_url)
    slots = Slots(inline)
    inline.define("w", step(work, concurrency_limit=limit("x", 1)))
    yield slots
    assert_gates_are_consistent(inline.store.database, at_rest=True)
    inline.close()


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(2) as pool:
        yield pool


def test_the_end_of_a_run_starts_the_next_one_that_waits(slots: Slots) -> None:
    slots.hold("a", "b", "c")
    finished = slots.finish("a", successor=slots.successor())
    assert (finished.taken.run_id, finished.taken.attempt, finished.grants) == ("b", 1, ())
    assert finished.taken.waited > 0
    assert (slots.status("b"), slots.run("b").status) == ("running", "running")
    assert (slots.waiting, slots.used) == (["c"], {"x": 1})
    assert [one.what for one in slots.inline.rival.history("b")][-2:] == ["queued", "claimed"]


def test_a_process_goes_through_a_queue_without_claims_and_messages(
    slots: Slots, monkeypatch: pytest.MonkeyPatch
) -> None:
    slots.hold("a", "b", "c", "d")
    slots.finish("a")
    calls: list[str] = []
    claim_step = slots.store.claim_step

    def counted(claim: Claim, *args: Any, **options: Any) -> Any:
        calls.append(claim.run_id)
        return claim_step(claim, *args, **options)

    monkeypatch.setattr(slots.store, "claim_step", counted)
    token = slots.step("b")["execution_token"]
    slots.inline.coordinator.attempt("b", "work", token, "w", next(iter(slots.inline.registry)).version)
    assert [slots.run(name).status for name in "bcd"] == ["completed"] * 3
    assert (calls, slots.inline.doorbell.take()) == (["b"], [])


# -- what is left to a claim of its own -------------------------------------------------------------------------

LOCKS = {
    "lock of the run": f"SELECT pg_advisory_xact_lock(hashtextextended('b', {RUN_LOCK}))",
    "row of the run": "SELECT 1 FROM rival_runs WHERE id = 'b' FOR UPDATE",
    "row of the step": "SELECT 1 FROM rival_steps WHERE run_id = 'b' FOR UPDATE",
}


@pytest.mark.parametrize("lock", LOCKS)
def test_a_step_that_another_transaction_has_locked_is_granted_the_slot_without_waiting(
    slots: Slots, other: OtherTransaction, lock: str
) -> None:
    slots.hold("a", "b", "c")
    other.connection.execute(LOCKS[lock].encode())
    finished = slots.finish("a", successor=slots.successor())
    assert (finished.taken, [one.run_id for one in finished.grants]) == (None, ["b"])
    other.rollback()
    assert (slots.status("b"), slots.granted, slots.used) == ("waiting", ["b"], {"x": 1})
    assert slots.claim("b") is not None


@pytest.mark.parametrize(
    ("table", "change", "back"),
    [
        ("rival_runs", "policies = '{}'", "policies = NULL"),
        ("rival_runs", "version = 'v' || version", "version = substr(version, 2)"),
        ("rival_runs", "paused_at = now()", "paused_at = NULL"),
        ("rival_steps", "queue = 'gpu'", "queue = NULL"),
        ("rival_steps", "start_by = now() - interval '1 s'", "start_by = NULL"),
        ("rival_steps", "deadline_at = now() - interval '1 s'", "deadline_at = NULL"),
        ("rival_steps", "execution_token = execution_token + 1", "execution_token = execution_token - 1"),
        ("rival_gates", "name = 'y'", "name = 'x'"),
        ("rival_gates", "key = 'k'", "key = ''"),
    ],
)
def test_a_step_that_is_not_as_expected_is_granted_the_slot(
    slots: Slots, other: OtherTransaction, table: str, change: str, back: str
) -> None:
    slots.hold("a", "b")
    which = {"rival_runs": "id = 'b'", "rival_steps": "run_id = 'b'", "rival_gates": "true"}[table]
    other.connection.execute(f"UPDATE {table} SET {change} WHERE {which}".encode())
    other.commit()
    finished = slots.finish("a", successor=slots.successor())
    assert (finished.taken, [one.run_id for one in finished.grants]) == (None, ["b"])
    assert slots.status("b") == "waiting"
    other.connection.execute(f"UPDATE {table} SET {back} WHERE {which}".encode())
    other.commit()


def test_a_step_of_another_place_is_granted_the_slot(slots: Slots) -> None:
    slots.inline.define("v", step(work, name="other", concurrency_limit=limit("x", 1)))
    slots.hold("a")
    slots.start("b", workflow="v")
    assert isinstance(slots.claim("b", "other", "v"), Queued)
    finished = slots.finish("a", successor=slots.successor())
    assert (finished.taken, [one.run_id for one in finished.grants]) == (None, ["b"])


# -- races ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", ["cancel", "pause"])
def test_what_is_stopped_while_it_is_taken_has_started(
    slots: Slots, other: OtherTransaction, pool: ThreadPoolExecutor, verb: str
) -> None:
    slots.hold("a", "b", "c")
    other.finish("a", slots.successor())
    stops = pool.submit(getattr(slots.inline.rival, verb), "b")
    until_blocked(slots.database)
    other.commit()
    stops.result(10)
    entries = [one.what for one in slots.inline.rival.history("b")]
    assert "claimed" in entries
    assert slots.used == {"x": 1}
    assert (slots.granted, slots.waiting) == ((["c"], []) if verb == "cancel" else ([], ["c"]))
    assert slots.status("b") == ("cancelled" if verb == "cancel" else "running")


@pytest.mark.parametrize("verb", ["cancel", "pause"])
def test_what_is_just_being_stopped_is_not_taken(
    slots: Slots, other: OtherTransaction, pool: ThreadPoolExecutor, verb: str
) -> None:
    """The operator has the lock of the run, and waits for the row of its step."""
    slots.hold("a", "b", "c")
    other.connection.execute("SELECT 1 FROM rival_steps WHERE run_id = 'b' FOR UPDATE")
    stops = pool.submit(getattr(slots.inline.rival, verb), "b")
    until_blocked(slots.database)
    finished = slots.finish("a", successor=slots.successor())
    assert (finished.taken, [one.run_id for one in finished.grants]) == (None, ["b"])
    other.rollback()
    stops.result(10)
    assert (slots.granted, slots.waiting, slots.used) == (["c"], [], {"x": 1})


def test_a_stop_that_was_committed_after_the_finish_has_begun_is_seen(
    slots: Slots, other: OtherTransaction, pool: ThreadPoolExecutor
) -> None:
    """The finish waits for its own step, and its snapshot is older than the pause."""
    slots.hold("a", "b", "c")
    other.connection.execute("SELECT 1 FROM rival_steps WHERE run_id = 'a' FOR UPDATE")
    finishes = pool.submit(slots.finish, "a", successor=slots.successor())
    until_blocked(slots.database)
    slots.inline.rival.pause("b")
    other.rollback()
    finished = finishes.result(10)
    assert finished.taken is not None
    assert (finished.taken.run_id, slots.status("b"), slots.used) == ("c", "pending", {"x": 1})


def expire(slots: Slots, run_id: str, token: int) -> Any:
    """Its queue_timeout is over."""
    end = End("failed", error=ERROR, hard=True, outcome="expired")
    definition = next(iter(slots.inline.registry))
    advance = interpreter.advance(definition.plan, "work", end, "step").with_options(definition.policies.at)
    return slots.store.finish_step(Claim(run_id, "work", token, "timeout_token"), end, advance, claim_for=None)


def test_a_step_that_is_taken_just_before_it_expires_goes_on(
    slots: Slots, other: OtherTransaction, pool: ThreadPoolExecutor
) -> None:
    slots.hold("a", "b", "c")
    token = slots.step("b")["timeout_token"]
    other.finish("a", slots.successor())
    expires = pool.submit(expire, slots, "b", token)
    until_blocked(slots.database)
    other.commit()
    assert expires.result(10) is None
    assert (slots.status("b"), slots.waiting, slots.used) == ("running", ["c"], {"x": 1})


def test_a_step_that_expires_just_before_it_is_taken_gives_the_slot_on(
    slots: Slots, other: OtherTransaction, pool: ThreadPoolExecutor
) -> None:
    """The expiry has the row of the step, and waits for its ticket."""
    slots.hold("a", "b", "c")
    other.connection.execute("SELECT 1 FROM rival_tickets WHERE run_id = 'b' FOR KEY SHARE")
    expires = pool.submit(expire, slots, "b", slots.step("b")["timeout_token"])
    until_blocked(slots.database)
    finished = slots.finish("a", successor=slots.successor())
    assert finished.taken is not None
    assert finished.taken.run_id == "c"
    other.rollback()
    assert expires.result(10) is not None
    assert (slots.status("b"), slots.status("c"), slots.used) == ("failed", "running", {"x": 1})


def test_an_attempt_that_was_taken_over_starts_nothing(slots: Slots) -> None:
    slots.hold("a", "b", "c")
    slots.store.take_over_step(slots.running["a"])
    assert slots.finish("a", successor=slots.successor()) is None
    assert (slots.granted, slots.status("b"), slots.used) == (["b"], "waiting", {"x": 1})


def test_two_ends_of_one_attempt_start_one_step(
    slots: Slots, other: OtherTransaction, pool: ThreadPoolExecutor
) -> None:
    slots.hold("a", "b", "c")
    claim = slots.running["a"]
    other.finish("a", slots.successor())
    slots.running["a"] = claim
    again = pool.submit(slots.finish, "a", successor=slots.successor())
    until_blocked(slots.database)
    other.commit()
    assert again.result(10) is None
    assert (slots.status("b"), slots.waiting, slots.used) == ("running", ["c"], {"x": 1})


def test_a_takeover_of_the_ending_attempt_waits_for_the_end(
    slots: Slots, other: OtherTransaction, pool: ThreadPoolExecutor
) -> None:
    slots.hold("a", "b", "c")
    claim = slots.running["a"]
    other.finish("a", slots.successor())
    taken_over = pool.submit(slots.store.take_over_step, claim)
    until_blocked(slots.database)
    other.commit()
    assert taken_over.result(10) is None
    assert (slots.status("b"), slots.waiting, slots.used) == ("running", ["c"], {"x": 1})


def test_two_ends_at_once_start_two_steps_without_waiting(slots: Slots, other: OtherTransaction) -> None:
    slots.inline.rival.set_limit("x", 2)
    slots.hold("a", "b", "c", "d")
    other.finish("a", slots.successor())
    assert slots.finish("b", successor=slots.successor()).taken.run_id == "d"
    other.commit()
    assert ([slots.status(name) for name in "cd"], slots.used) == (["running", "running"], {"x": 2})


def test_what_a_process_takes_and_does_not_commit_waits_as_before(slots: Slots, other: OtherTransaction) -> None:
    slots.hold("a", "b")
    claim = slots.running["a"]
    other.finish("a", slots.successor())
    other.rollback()
    slots.running["a"] = claim
    assert (slots.status("a"), slots.waiting, slots.used) == ("running", ["b"], {"x": 1})


def test_what_a_lost_commit_has_taken_is_handed_back(slots: Slots) -> None:
    slots.hold("a", "b", "c")
    slots.finish("a")
    lose_answer(slots.inline, "finish_step")
    token = slots.step("b")["execution_token"]
    slots.inline.coordinator.attempt("b", "work", token, "w", next(iter(slots.inline.registry)).version)
    assert slots.run("b").status == "completed"
    slots.inline.process.executor.hand_back_strays()
    slots.inline.drain()
    assert (slots.run("c").status, slots.used) == ("completed", {"x": 0})
