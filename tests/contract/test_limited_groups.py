"""A group of commits of steps with limits: slots are taken, carried over and given back as by single statements, and
what must wait, or is waited for, is made alone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import text

from rival_workers import limit, step
from rival_workers.store.claim_records import BeginResult, Claim
from rival_workers.store.group_commits import ALONE, BeginRun, Commit, FinishStep
from tests.support.inline import Inline
from tests.support.limits import OtherTransaction, Slots, assert_gates_are_consistent

X, Y = limit("x", 2), limit("y", 2)


def work(run: Any) -> str:
    return str(run.run_id)


@pytest.fixture
def slots(postgres_url: str) -> Iterator[Slots]:
    inline = Inline(postgres_url)
    yield Slots(inline)
    assert_gates_are_consistent(inline.store.database, at_rest=True)
    inline.close()


@pytest.fixture
def other(slots: Slots) -> Iterator[OtherTransaction]:
    other = OtherTransaction(slots)
    yield other
    other.connection.close()


def define(slots: Slots, *limits: Any, warm: bool = True) -> None:
    """Steps `one`, `two` … with these limits. `warm`: their gates exist."""
    named = zip(("one", "two", "three"), limits, strict=False)
    slots.inline.define("w", *(step(work, name=name, concurrency_limit=of) for name, of in named))
    if warm:
        slots.inline.rival.run("w", {"k": "k"}, run_id="warm")
        slots.inline.drain()


def begin(slots: Slots, run_id: str) -> BeginRun:
    slots.inline.rival.run("w", {"k": "k"}, run_id=run_id)
    slots.inline.doorbell.take()
    return slots.beginning(run_id)


def finish(slots: Slots, run_id: str, path: str = "one", token: int | None = None) -> FinishStep:
    token = slots.step(run_id, path)["execution_token"] if token is None else token
    return slots.finishing(Claim(run_id, path, token))


def together(slots: Slots, *commits: Commit) -> list[Any]:
    assert all(slots.store.can_group(commit) for commit in commits)
    return slots.store.commit_group(commits)


def started(slots: Slots, *run_ids: str) -> None:
    for answer in together(slots, *(begin(slots, run_id) for run_id in run_ids)):
        assert isinstance(answer, BeginResult)


def test_slots_are_taken_carried_over_and_given_back_in_groups(slots: Slots) -> None:
    define(slots, X, X, Y)
    started(slots, "a", "b")
    assert slots.used == {"x": 2, "y": 0}
    for answer in together(slots, finish(slots, "a"), finish(slots, "b")):
        assert answer.claimed.path == "two"
    assert slots.used == {"x": 2, "y": 0}
    for answer in together(slots, finish(slots, "a", "two"), finish(slots, "b", "two")):
        assert answer.claimed.path == "three"
    assert slots.used == {"x": 0, "y": 2}
    for answer in together(slots, finish(slots, "a", "three"), finish(slots, "b", "three")):
        assert (answer.run_ended, answer.claimed) == (True, None)
    assert slots.used == {"x": 0, "y": 0}
    assert slots.inline.rival.result("a").status == "completed"
    with slots.database.autocommit() as connection:
        ends = "SELECT count(DISTINCT xmin::text) FROM rival_steps WHERE run_id IN ('a', 'b')"
        assert connection.scalar(text(ends)) == 3


def test_steps_with_and_without_limits_and_starts_are_one_group(slots: Slots) -> None:
    define(slots, X, (), Y)
    started(
        slots,
        "a",
        "b",
    )
    assert together(slots, finish(slots, "a"), finish(slots, "b"))[0].claimed.path == "two"
    one, two, three = together(slots, finish(slots, "a", "two"), finish(slots, "b", "two"), begin(slots, "c"))
    assert (one.claimed.path, two.claimed.path, three.finished.claimed.path) == ("three", "three", "one")
    assert slots.used == {"x": 1, "y": 2}


def test_as_many_start_as_there_are_slots(slots: Slots) -> None:
    define(slots, X)
    commits = [begin(slots, name) for name in "abcd"]
    answers = together(slots, *commits)
    assert [answer is ALONE for answer in answers] == [False, False, True, True]
    assert (slots.used, slots.run("c").status) == ({"x": 2}, "pending")
    for commit in commits[2:]:
        commit.apply(slots.store)
        slots.claim(commit.run_id, "one")
    assert (slots.waiting, slots.used) == (["c", "d"], {"x": 2})
    # The next one that begins waits, too, which one commit does: no group tries it.
    assert not slots.store.can_group(begin(slots, "e"))


def test_a_run_whose_message_came_twice_begins_once(slots: Slots) -> None:
    define(slots, X)
    new = begin(slots, "a")
    assert sorted(answer is ALONE for answer in together(slots, new, new)) == [False, True]
    assert (slots.status("a", "one"), slots.used) == ("running", {"x": 1})


def test_a_limit_whose_gate_others_use_all_the_time_is_left_to_single_commits(
    slots: Slots, other: OtherTransaction
) -> None:
    define(slots, X)
    started(slots, "a", "b")
    commits = [finish(slots, "a"), finish(slots, "b")]
    other.connection.execute("SELECT 1 FROM rival_gates FOR SHARE")
    while all(slots.store.can_group(commit) for commit in commits):
        assert slots.store.commit_group(commits) == [ALONE, ALONE]
    other.rollback()
    while not all(slots.store.can_group(commit) for commit in commits):
        pass
    assert ALONE not in slots.store.commit_group(commits)


def test_slots_that_others_wait_for_are_handed_on_alone(slots: Slots) -> None:
    define(slots, X, X)
    started(slots, "a", "b")
    slots.start("c", {"k": "k"})
    slots.claim("c", "one")
    commits = [finish(slots, "a"), finish(slots, "b")]
    assert together(slots, *commits) == [ALONE, ALONE]
    assert (slots.status("a", "one"), slots.waiting) == ("running", ["c"])
    assert [grant.run_id for commit in commits for grant in commit.apply(slots.store).grants] == ["c"]


def test_a_step_whose_next_gate_is_full_is_made_alone(slots: Slots) -> None:
    define(slots, limit("x", 3), Y)
    started(slots, "a", "b", "c")
    commits = [finish(slots, name) for name in "abc"]
    answers = together(slots, *commits)
    assert [answer is ALONE for answer in answers] == [False, False, True]
    assert slots.used == {"x": 1, "y": 2}
    opened = commits[2].apply(slots.store)
    assert [one.path for one in opened.opened] == ["two"]


def test_a_gate_that_another_transaction_has_locked_is_not_waited_for(slots: Slots, other: OtherTransaction) -> None:
    define(slots, limit("x", 2, key="input.k"), (), X)
    started(slots, "a", "b")
    new = begin(slots, "c")
    other.connection.execute("SELECT 1 FROM rival_gates WHERE key = 'k' FOR SHARE")
    assert together(slots, finish(slots, "a"), finish(slots, "b"), new) == [ALONE] * 3
    other.rollback()
    assert (slots.status("a", "one"), slots.run("c").status, slots.used["k"]) == ("running", "pending", 2)


def test_a_stale_commit_among_fresh_ones_gives_nothing_back(slots: Slots) -> None:
    define(slots, X)
    started(slots, "a", "b")
    stale = finish(slots, "a", token=0)
    assert [answer is ALONE for answer in together(slots, stale, finish(slots, "b"))] == [True, False]
    assert stale.apply(slots.store) is None
    assert (slots.status("a", "one"), slots.used) == ("running", {"x": 1})


def test_a_run_that_an_operator_has_locked_is_made_alone(slots: Slots, other: OtherTransaction) -> None:
    define(slots, X)
    started(slots, "a", "b")
    other.connection.execute("SELECT pg_advisory_xact_lock(hashtextextended('a', 726356))")
    assert [answer is ALONE for answer in together(slots, finish(slots, "a"), finish(slots, "b"))] == [True, False]
    assert slots.used == {"x": 1}


def test_what_was_entered_while_a_group_freed_a_slot_of_a_full_gate_is_granted(
    slots: Slots, monkeypatch: pytest.MonkeyPatch
) -> None:
    define(slots, limit("x", 3))
    started(slots, "a", "b", "c")
    looks: list[Any] = []
    look_again = slots.store.look_again

    def looking(gates: Any) -> Any:
        looks.append(len(gates))
        return look_again(gates)

    monkeypatch.setattr(slots.store, "look_again", looking)
    together(slots, finish(slots, "a"), finish(slots, "b"))
    together(slots, finish(slots, "c"), begin(slots, "d"))
    assert looks == [1, 0]


def test_what_has_several_limits_or_waits_behind_a_successor_is_not_grouped(slots: Slots) -> None:
    define(slots, [X, Y], X)
    slots.start("a", {"k": "k"})
    slots.claim("a", "one")
    assert not slots.store.can_group(begin(slots, "b"))
    assert not slots.store.can_group(finish(slots, "a"))
