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
from rival_workers.store.sql.locks import FAIR_GROUPS
from tests.support.inline import Inline
from tests.support.limits import OtherTransaction, Slots, assert_gates_are_consistent, work

X, Y = limit("x", 2), limit("y", 2)


@pytest.fixture
def slots(postgres_url: str) -> Iterator[Slots]:
    inline = Inline(postgres_url)
    yield Slots(inline)
    assert_gates_are_consistent(inline.store.database, at_rest=True)
    inline.close()


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


def full(slots: Slots, *limits: Any) -> None:
    """Two runs have the slots, and it is known that the next one has to wait."""
    define(slots, *limits)
    started(slots, "a", "b")
    first = begin(slots, "c")
    first.apply(slots.store)
    slots.claim("c", "one")
    assert slots.waiting == ["c"]


def test_runs_that_begin_at_a_full_gate_wait_in_the_order_of_the_group(slots: Slots) -> None:
    full(slots, X)
    for answer in together(slots, *(begin(slots, name) for name in "def")):
        assert isinstance(answer, BeginResult)
        assert (answer.finished.claimed, answer.finished.opened) == (None, ())
    assert (slots.waiting, slots.used) == (["c", "d", "e", "f"], {"x": 2})
    assert {slots.status(name, "one") for name in "def"} == {"waiting"}
    assert {slots.run(name).status for name in "def"} == {"suspended"}
    [grant] = finish(slots, "a").apply(slots.store).grants
    assert grant.run_id == "c"


def test_runs_that_begin_in_one_group_wait_in_the_order_of_their_tenants(slots: Slots) -> None:
    full(slots, limit("x", 2, fair="input.k"))
    commits = []
    for name, tenant in (("d", "k"), ("e", "l"), ("f", "l"), ("g", "m"), ("h", "k")):
        slots.inline.rival.run("w", {"k": tenant}, run_id=name)
        slots.inline.doorbell.take()
        commits.append(slots.beginning(name))
    assert ALONE not in together(slots, *commits)
    assert slots.waiting == ["c", "e", "g", "d", "f", "h"]


def test_a_group_does_not_wait_for_another_arrival_of_the_same_tenant(slots: Slots, other: OtherTransaction) -> None:
    full(slots, limit("x", 2, fair="input.k"))
    new = [begin(slots, name) for name in "de"]
    other.connection.execute(f"SELECT pg_advisory_xact_lock({FAIR_GROUPS}, hashtext('x' || E'\\x1f' || 'k'))")
    assert together(slots, *new) == [ALONE, ALONE]
    other.rollback()
    assert (slots.waiting, slots.run("d").status) == (["c"], "pending")


def test_a_group_that_comes_to_a_gate_that_has_room_again_is_made_alone(slots: Slots) -> None:
    full(slots, X)
    for name in "abc":
        if slots.status(name, "one") == "waiting":
            slots.claim(name, "one")
        finish(slots, name).apply(slots.store)
    new = [begin(slots, name) for name in "de"]
    assert together(slots, *new) == [ALONE, ALONE]
    for answer in together(slots, *new):
        assert answer.finished.claimed.path == "one"
    assert slots.used == {"x": 2}


def test_a_group_does_not_wait_for_a_full_gate_that_another_transaction_has_locked(
    slots: Slots, other: OtherTransaction
) -> None:
    full(slots, X)
    new = [begin(slots, name) for name in "de"]
    other.connection.execute("SELECT 1 FROM rival_gates FOR UPDATE")
    assert together(slots, *new) == [ALONE, ALONE]
    other.rollback()
    assert slots.run("d").status == "pending"


def test_a_group_of_arrivals_shares_the_gate_with_others_and_each_is_let_through_in_turn(
    slots: Slots, other: OtherTransaction
) -> None:
    define(slots, limit("x", 1))
    started(slots, "a")
    begin(slots, "b").apply(slots.store)
    slots.claim("b", "one")
    new = [begin(slots, name) for name in "cd"]
    other.connection.execute("SELECT 1 FROM rival_gates FOR SHARE")
    assert ALONE not in together(slots, *new)
    other.rollback()
    for name, after in zip("abcd", ["b", "c", "d", None], strict=True):
        if name != "a":
            slots.claim(name, "one")
        grants = finish(slots, name).apply(slots.store).grants
        assert [one.run_id for one in grants] == ([after] if after else [])


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
