"""Starts that cancel the run with their singleton key (`on_conflict="cancel"`) while others are queued, on every store.

The run that has the place is the one that runs, or the one that begins next.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from sqlalchemy import select

from rival_client import NotPossible
from rival_client.db.limit_tables import gates
from rival_client.db.run_tables import runs
from rival_workers import delay_step, limit, step
from tests.contract.test_run_times import go_on, pass_time, status
from tests.contract.test_shared_starts import REOPEN, waits
from tests.contract.test_singleton_queue import in_any_order, leftovers, place_of, queue, statuses
from tests.support.inline import Inline
from tests.support.limits import assert_gates_are_consistent
from tests.support.locks import until_blocked


def replace(inline: Inline, run_id: str, **options: Any) -> str:
    return inline.rival.run("w", run_id, run_id=run_id, singleton="k", on_conflict="cancel", **options).status


def found(inline: Inline) -> str:
    """The run that other starts find: by returning it, and by being skipped."""
    returned = inline.rival.run("w", 0, singleton="k")
    assert returned.status == "running"
    skipped = inline.rival.run("w", 0, singleton="k", on_conflict="skip")
    assert skipped.instead_of == returned.run_id
    return returned.run_id


def queued(inline: Inline, *run_ids: str, deliver: bool = True) -> None:
    """The first of them runs, and the others are queued; without `deliver` their messages are lost."""
    for one in run_ids:
        queue(inline, one)
        inline.drain() if deliver or one == run_ids[0] else inline.doorbell.take()


def undoes(inline: Inline) -> None:
    """Its runs wait an hour, and another one while they are undone."""

    def undo(run: Any) -> None:
        if run.attempt == 1:
            raise ValueError("not yet")

    inline.define(
        "w",
        step(lambda input: input, name="a", compensate=undo, max_retries=1, base_delay=60),
        delay_step(3600, name="wait"),
        compensate_on_cancel=True,
    )


@pytest.mark.parametrize("deliver", [True, False])
@pytest.mark.parametrize("seed", range(3))
def test_a_run_that_has_cancelled_another_begins_before_those_that_are_queued(
    inline: Inline, deliver: bool, seed: int
) -> None:
    waits(inline)
    queued(inline, *"abc", deliver=deliver)
    assert replace(inline, "x") == "started"
    assert (found(inline), place_of(inline, "x")) == ("x", "k")
    in_any_order(inline, seed)
    go_on(inline)
    assert statuses(inline, *"abcx") == ["cancelled", "pending", "pending", "suspended"]
    assert found(inline) == "x"
    for ends, begins in (("x", "b"), ("b", "c")):
        inline.rival.cancel(ends)
        go_on(inline)
        pass_time(inline, 60)
        go_on(inline)
        assert (status(inline, begins), found(inline)) == ("suspended", begins)
    inline.rival.cancel("c")
    assert leftovers(inline) == (0, 0)


def test_a_later_start_cancels_the_run_that_runs_and_none_that_is_queued(inline: Inline) -> None:
    waits(inline)
    queued(inline, *"abc")
    for before, one in (("a", "x"), ("x", "y"), ("y", "z")):
        replace(inline, one)
        go_on(inline)
        assert statuses(inline, before, one, *"bc") == ["cancelled", "suspended", "pending", "pending"]
    inline.rival.cancel("z")
    go_on(inline)
    assert (status(inline, "b"), found(inline)) == ("suspended", "b")
    replace(inline, "last")
    go_on(inline)
    assert statuses(inline, "b", "c", "last") == ["cancelled", "pending", "suspended"]


def test_the_run_begins_when_the_other_has_been_undone_and_a_later_start_does_not_disturb_that(inline: Inline) -> None:
    undoes(inline)
    queued(inline, *"abc")
    replace(inline, "x")
    go_on(inline)
    assert statuses(inline, *"abcx") == ["running", "pending", "pending", "pending"]
    assert found(inline) == "x"
    replace(inline, "y")
    go_on(inline)
    assert statuses(inline, *"abcxy") == ["running", "pending", "pending", "cancelled", "pending"]
    assert found(inline) == "y"
    pass_time(inline, 61)
    go_on(inline)
    assert statuses(inline, *"abcy") == ["cancelled", "pending", "pending", "suspended"]


@pytest.mark.parametrize("why", ["paused", "not due"])
def test_a_run_that_cannot_begin_leaves_the_place_to_one_that_is_queued(inline: Inline, why: str) -> None:
    undoes(inline)
    queued(inline, *"abc")
    replace(inline, "x", **({"delay": 600} if why == "not due" else {}))
    if why == "paused":
        inline.rival.pause("x")
    go_on(inline)
    pass_time(inline, 61)
    go_on(inline)
    assert statuses(inline, *"abcx") == ["cancelled", "suspended", "pending", "pending"]
    assert (found(inline), place_of(inline, "x")) == ("b", None)
    if why == "paused":
        inline.rival.resume("x")
    else:
        pass_time(inline, 700)
    go_on(inline)
    replace(inline, "y")
    go_on(inline)
    pass_time(inline, 61)
    go_on(inline)
    assert statuses(inline, *"bcxy") == ["cancelled", "pending", "pending", "suspended"]
    for one in "ycx":
        assert found(inline) == one
        inline.rival.cancel(one)
        go_on(inline)
        pass_time(inline, 61)
        go_on(inline)
    assert leftovers(inline) == (0, 0)


def test_a_run_that_is_paused_and_resumed_before_the_other_has_ended_still_goes_first(inline: Inline) -> None:
    undoes(inline)
    queued(inline, *"abc")
    replace(inline, "x")
    go_on(inline)
    inline.rival.pause("x")
    inline.rival.resume("x")
    go_on(inline)
    pass_time(inline, 61)
    go_on(inline)
    assert statuses(inline, *"abcx") == ["cancelled", "pending", "pending", "suspended"]


def test_a_run_that_runs_is_paused_and_keeps_the_place(inline: Inline) -> None:
    waits(inline)
    queued(inline, "a", "b")
    replace(inline, "x")
    go_on(inline)
    inline.rival.pause("x")
    go_on(inline)
    assert (found(inline), status(inline, "b")) == ("x", "pending")
    replace(inline, "y")
    go_on(inline)
    assert statuses(inline, "x", "b", "y") == ["cancelled", "pending", "suspended"]


def test_a_start_with_the_place_yields_it_to_a_queued_run_that_begins_before(inline: Inline) -> None:
    waits(inline)
    queued(inline, "a", "b", "c", deliver=False)
    inline.rival.cancel("a")
    inline.doorbell.take()
    for one, how in (("r", "return"), ("s", "skip")):
        options: Any = {"singleton": "k", "on_conflict": how}
        assert inline.rival.run("w", 0, run_id=one, **options).run_id in ("r", "s")
    go_on(inline)
    pass_time(inline, 60)
    go_on(inline)
    assert statuses(inline, "b", "c", "r") == ["suspended", "pending", "pending"]
    assert found(inline) == "b"
    replace(inline, "x")
    go_on(inline)
    assert statuses(inline, "b", "c", "r", "x") == ["cancelled", "pending", "pending", "suspended"]
    for ends, begins in (("x", "c"), ("c", "r")):
        inline.rival.cancel(ends)
        go_on(inline)
        pass_time(inline, 60)
        go_on(inline)
        assert (status(inline, begins), found(inline)) == ("suspended", begins)


def test_a_limit_of_the_workflow_does_not_put_the_run_before_others(inline: Inline) -> None:
    """It goes first among the runs of its key, not at the limit of whole runs."""
    inline.define("w", step(lambda input: input, name="a"), delay_step(3600), concurrency_limit=limit(1))
    inline.rival.run("w", 0, run_id="other")
    inline.drain()
    queue(inline, "a")
    inline.rival.run("w", 0, run_id="next")
    go_on(inline)
    pass_time(inline, 1)
    replace(inline, "x")
    go_on(inline)
    assert statuses(inline, "other", "a", "next", "x") == ["suspended", "cancelled", "pending", "pending"]
    inline.rival.cancel("other")
    go_on(inline)
    assert statuses(inline, "next", "x") == ["suspended", "pending"]
    inline.rival.cancel("next")
    go_on(inline)
    assert status(inline, "x") == "suspended"
    inline.rival.cancel("x")
    assert leftovers(inline) == (0, 0)


# -- operators ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", ["retry", "rewind"])
def test_a_run_that_was_replaced_is_not_opened_again_before_the_new_one_has_begun(inline: Inline, verb: str) -> None:
    undoes(inline)
    queued(inline, "old", "b")
    replace(inline, "x")
    inline.rival.pause("x")
    inline.rival.cancel("b")
    go_on(inline)
    pass_time(inline, 61)
    go_on(inline)
    assert statuses(inline, "old", "x") == ["cancelled", "pending"]
    with pytest.raises(NotPossible, match="run 'x' has its singleton place 'k'"):
        REOPEN[verb](inline.rival)
    inline.rival.cancel("x")
    go_on(inline)
    REOPEN[verb](inline.rival)
    assert (found(inline), place_of(inline, "old"), leftovers(inline)) == ("old", "k", (1, 0))
    assert queue(inline, "new") == "queued"


def test_a_cancelled_run_that_had_not_begun_waits_for_the_others_when_it_is_retried(inline: Inline) -> None:
    undoes(inline)
    queued(inline, "a", "b")
    replace(inline, "x")
    replace(inline, "y")
    with pytest.raises(NotPossible, match="run 'y' has its singleton place 'k'"):
        inline.rival.retry("x")
    pass_time(inline, 61)
    go_on(inline)
    inline.rival.cancel("y")
    go_on(inline)
    pass_time(inline, 61)
    go_on(inline)
    assert (status(inline, "b"), found(inline)) == ("suspended", "b")


# -- races ----------------------------------------------------------------------------------------------------


def test_two_starts_that_cancel_at_one_moment_leave_one_run_and_undo_the_other_once(postgres_url: str) -> None:
    inline = Inline(postgres_url)
    undoes(inline)
    queued(inline, "a", "b")
    with ThreadPoolExecutor(2) as pool:
        with inline.store.database.transaction() as theirs:
            theirs.execute(select(runs.c.id).where(runs.c.id == "a").with_for_update())
            starts = [pool.submit(replace, inline, one) for one in "xy"]
            until_blocked(inline.store.database, 2)
        assert [one.result(20) for one in starts] == ["started"] * 2
    go_on(inline)
    assert status(inline, "a") == "running", "it is still being undone"
    assert sorted(statuses(inline, *"xy")) == ["cancelled", "pending"]
    pass_time(inline, 61)
    go_on(inline)
    assert sorted(statuses(inline, *"abxy")) == ["cancelled", "cancelled", "pending", "suspended"]
    assert status(inline, "b") == "pending"
    assert_gates_are_consistent(inline.store.database)
    inline.close()


def two_that_wait(inline: Inline) -> tuple[Any, Any]:
    """The messages of `b`, which was queued before, and of `c`, which has the place."""
    queue(inline, "a")
    inline.drain()
    queue(inline, "b")
    [of_b] = inline.doorbell.take()
    inline.rival.cancel("a")
    inline.doorbell.take()
    inline.rival.run("w", 0, run_id="c", singleton="k")
    [of_c] = inline.doorbell.take()
    assert place_of(inline, "c") == "k"
    return of_b, of_c


def test_a_start_cancels_no_run_that_has_just_left_its_place(postgres_url: str) -> None:
    """`c` has the place while it waits; `b` begins, and takes it, while the start waits for the row of `c`."""
    inline = Inline(postgres_url)
    waits(inline)
    of_b, _ = two_that_wait(inline)
    with ThreadPoolExecutor(2) as pool:
        with inline.store.database.transaction() as theirs:
            theirs.execute(select(gates).with_for_update())
            begins = pool.submit(inline.deliver, of_b)
            until_blocked(inline.store.database)
            start = pool.submit(replace, inline, "x")
            until_blocked(inline.store.database, 2)
        begins.result(20)
        assert start.result(20) == "started"
    go_on(inline)
    assert statuses(inline, *"abcx") == ["cancelled", "cancelled", "pending", "suspended"]
    assert found(inline) == "x"
    inline.close()


def test_a_run_that_begins_takes_the_place_from_one_that_asks_at_the_same_moment(postgres_url: str) -> None:
    inline = Inline(postgres_url)
    waits(inline)
    of_b, of_c = two_that_wait(inline)
    with ThreadPoolExecutor(2) as pool:
        with inline.store.database.transaction() as theirs:
            theirs.execute(select(gates).with_for_update())
            both = [pool.submit(inline.deliver, of_b)]
            until_blocked(inline.store.database)
            both.append(pool.submit(inline.deliver, of_c))
            until_blocked(inline.store.database, 2)
        for one in both:
            one.result(20)
    go_on(inline)
    assert (statuses(inline, "b", "c"), found(inline)) == (["suspended", "pending"], "b")
    inline.close()
