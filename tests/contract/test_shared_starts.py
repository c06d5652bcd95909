"""Starts that share a run, on every store: singletons, debounced starts and batches."""

from __future__ import annotations

import datetime as dt
import json
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest
from sqlalchemy import select

from rival_client import InvalidArgument, NotPossible, Rival, RivalError
from rival_client.db.database_urls import libpq_url
from rival_client.db.run_tables import runs
from rival_client.settings import Settings
from rival_workers import delay_step, step
from tests.contract.test_run_times import go_on, pass_time, recorded, status
from tests.support.flows import define, finish
from tests.support.inline import Inline
from tests.support.locks import until_blocked
from tests.support.output import whole


def waits(inline: Inline) -> None:
    inline.define("w", step(lambda input: input, name="a"), delay_step(3600, name="wait"))


def echo(inline: Inline, name: str = "w") -> None:
    inline.define(name, step(lambda input: input, name="a"))


def inputs(inline: Inline) -> list[Any]:
    return [run.input for run in reversed(inline.rival.runs())]


# -- singletons ---------------------------------------------------------------------------------------------


def test_a_second_start_returns_the_run_that_has_the_place(inline: Inline) -> None:
    waits(inline)
    first = inline.rival.run("w", 1, singleton="user-7")
    inline.drain()
    again = inline.rival.run("w", 2, singleton="user-7")
    assert (again.run_id, again.status, again.instead_of) == (first.run_id, "running", None)
    other = inline.rival.run("w", 3, singleton="user-8")
    assert other.status == "started"
    assert inline.rival.state(first.run_id).singleton == "user-7"


def test_a_skipped_start_says_which_run_has_the_place_and_is_in_its_history(inline: Inline) -> None:
    waits(inline)
    first = inline.rival.run("w", 1, run_id="first", singleton="k")
    skipped = inline.rival.run("w", 2, run_id="second", singleton="k", on_conflict="skip")
    assert (skipped.run_id, skipped.status, skipped.instead_of) == ("second", "skipped", first.run_id)
    assert [run.run_id for run in inline.rival.runs()] == ["first"]
    inline.drain()
    [entry] = [one for one in inline.rival.history("first") if one.what == "start_skipped"]
    assert entry.detail == {"run_id": "second"}
    with pytest.raises(
        RivalError,
        match=whole(
            "This start was skipped, so its run 'second' does not exist: run 'first' has the place of its "
            "singleton: wait for that one."
        ),
    ):
        skipped.wait()


def test_cancel_replaces_the_run_that_has_the_place(inline: Inline) -> None:
    waits(inline)
    inline.rival.run("w", 1, run_id="first", singleton="k")
    inline.drain()
    second = inline.rival.run("w", 2, run_id="second", singleton="k", on_conflict="cancel")
    assert second.status == "started"
    inline.drain()
    assert (status(inline, "first"), status(inline, "second")) == ("cancelled", "suspended")


def test_the_place_is_free_again_when_the_run_has_ended_and_is_per_workflow(inline: Inline) -> None:
    echo(inline)
    echo(inline, "other")
    first = inline.rival.run("w", 1, singleton="k")
    assert inline.rival.run("other", 1, singleton="k").status == "started"
    inline.drain()
    assert status(inline, first.run_id) == "completed"
    assert inline.rival.run("w", 2, singleton="k").status == "started"


def test_the_same_start_again_finds_its_own_run(inline: Inline) -> None:
    waits(inline)
    inline.rival.run("w", 1, run_id="r", singleton="k")
    for how in ("return", "skip", "cancel"):
        again = inline.rival.run("w", 1, run_id="r", singleton="k", on_conflict=how)  # type: ignore[arg-type]
        assert (again.run_id, again.status) == ("r", "running"), how


def test_a_run_whose_place_is_taken_cannot_be_reopened(inline: Inline) -> None:
    waits(inline)
    inline.rival.run("w", 1, run_id="old", singleton="k")
    inline.drain()
    inline.rival.cancel("old")
    inline.rival.run("w", 2, run_id="new", singleton="k")
    for verb in (lambda: inline.rival.retry("old"), lambda: inline.rival.rewind("old", "a")):
        with pytest.raises(
            NotPossible,
            match=whole(
                "Cannot … run 'old': run 'new' has its singleton place 'k': wait for its end, or cancel it. Nothing "
                "was changed."
            ),
        ):
            verb()
    inline.rival.cancel("new")
    inline.rival.retry("old")
    assert status(inline, "old") in ("running", "suspended")


def test_a_run_that_never_began_and_whose_place_is_taken_cannot_be_retried(inline: Inline) -> None:
    waits(inline)
    inline.rival.run("w", 1, run_id="old", singleton="k")
    inline.rival.cancel("old")
    inline.rival.run("w", 2, run_id="new", singleton="k")
    with pytest.raises(
        NotPossible,
        match=whole(
            "Cannot retry run 'old': run 'new' has its singleton place 'k': wait for its end, or cancel it. "
            "Nothing was changed."
        ),
    ):
        inline.rival.retry("old")


REOPEN: dict[str, Callable[[Rival], Any]] = {
    "retry": lambda rival: rival.retry("old"),
    "rewind": lambda rival: rival.rewind("old", "a"),
    "skip": lambda rival: rival.skip("old", "b", reason="test"),
}


def fails_with_place(inline: Inline) -> None:
    """`old` has failed at its second step."""
    inline.define("w", step(lambda: 1, name="a"), step(lambda: 1 / 0, name="b"))
    inline.rival.run("w", 1, run_id="old", singleton="k")
    inline.drain()


@pytest.mark.parametrize("verb", REOPEN)
def test_no_verb_reopens_a_run_whose_place_is_taken(inline: Inline, verb: str) -> None:
    fails_with_place(inline)
    inline.rival.run("w", 2, run_id="new", singleton="k")
    with pytest.raises(
        NotPossible,
        match=whole(
            "Cannot … run 'old': run 'new' has its singleton place 'k': wait for its end, or cancel it. Nothing "
            "was changed."
        ),
    ):
        REOPEN[verb](inline.rival)


@pytest.mark.parametrize("verb", REOPEN)
def test_a_verb_that_meets_a_start_of_the_same_moment_names_the_run_that_has_the_place(
    postgres_url: str, verb: str
) -> None:
    inline = Inline(postgres_url)
    fails_with_place(inline)
    with ThreadPoolExecutor(1) as pool, psycopg.connect(libpq_url(postgres_url)) as theirs:
        inline.rival.run("w", 2, run_id="new", singleton="k", connection=theirs)
        reopened = pool.submit(REOPEN[verb], inline.rival)
        until_blocked(inline.store.database)
        theirs.commit()
        with pytest.raises(
            NotPossible,
            match=whole(
                "Cannot … run 'old': run 'new' has its singleton place 'k': wait for its end, or cancel it. Nothing "
                "was changed."
            ),
        ):
            reopened.result(20)
    inline.close()


@pytest.mark.parametrize("verb", REOPEN)
def test_a_verb_that_meets_a_start_that_is_rolled_back_reopens_the_run(postgres_url: str, verb: str) -> None:
    inline = Inline(postgres_url)
    fails_with_place(inline)
    with ThreadPoolExecutor(1) as pool, psycopg.connect(libpq_url(postgres_url)) as theirs:
        inline.rival.run("w", 2, run_id="new", singleton="k", connection=theirs)
        reopened = pool.submit(REOPEN[verb], inline.rival)
        until_blocked(inline.store.database)
        theirs.rollback()
        reopened.result(20)
    assert status(inline, "old") != "failed"
    inline.close()


def test_eight_producers_that_start_one_singleton_start_one_run(inline: Inline) -> None:
    waits(inline)
    barrier = threading.Barrier(8)

    def start(number: int) -> str:
        barrier.wait()
        return inline.rival.run("w", number, singleton="k").run_id

    with ThreadPoolExecutor(8) as pool:
        assert len(set(pool.map(start, range(8)))) == 1


def test_a_tick_of_a_schedule_whose_place_is_taken_is_skipped(inline: Inline) -> None:
    waits(inline)
    inline.rival.schedule("w", 60, name="s", singleton="nightly", on_conflict="skip", catch_up="last", input=1)
    for _ in range(3):
        past = "now() - interval '1 minute'" if inline.store.database.is_postgres else "rival_now() - 60"
        with inline.store.database.transaction() as connection:
            connection.exec_driver_sql(f"UPDATE rival_schedules SET next_at = {past}")
        if inline.clock is not None:
            inline.clock.advance(60)
        go_on(inline)
    assert len(inline.rival.runs()) == 1


# -- debounce -----------------------------------------------------------------------------------------------


def test_starts_with_one_key_become_one_run_with_the_last_input(inline: Inline) -> None:
    echo(inline)
    first = inline.rival.run("w", 1, debounce=5, key="doc-1")
    pass_time(inline, 3)
    second = inline.rival.run("w", 2, debounce=5, key="doc-1")
    inline.rival.run("w", 9, debounce=5, key="doc-2")
    assert (first.status, second.status, second.run_id) == ("started", "gathered", first.run_id)
    pass_time(inline, 3)
    inline.drain()
    assert status(inline, first.run_id) == "pending", "the second start has postponed it"
    pass_time(inline, 30)
    go_on(inline)
    assert sorted(run.result for run in inline.rival.runs()) == [2, 9]
    assert recorded(inline, first.run_id)[:2] == [(None, "gathered"), (None, "started")]
    third = inline.rival.run("w", 3, debounce=5, key="doc-1")
    assert (third.status, third.run_id != first.run_id) == ("started", True)


def test_a_debounced_run_that_began_in_a_transaction_of_the_caller_is_not_late(inline: Inline) -> None:
    """No process has published its message."""
    echo(inline)
    with inline.store.database.transaction() as theirs:
        first = inline.rival.run("w", 1, debounce=5, key="k", connection=theirs)
    assert inline.rival.run("w", 2, debounce=5, key="k").run_id == first.run_id
    assert inline.doorbell.take() == []
    pass_time(inline, 6)
    inline.keeper.run_once()
    inline.drain()
    assert inline.rival.result(first.run_id).result == 2


def test_a_debounced_run_begins_at_the_latest_after_max_wait(inline: Inline) -> None:
    echo(inline)
    first = inline.rival.run("w", 0, debounce=5, key="k", max_wait=12)
    inline.drain()
    for number in range(1, 4):
        pass_time(inline, 3)
        inline.rival.run("w", number, debounce=5, key="k", max_wait=12)
    state = inline.rival.state(first.run_id)
    assert state.due_at is not None
    assert state.due_at - state.created_at == dt.timedelta(seconds=12)
    pass_time(inline, 4)
    go_on(inline)
    assert inline.rival.state(first.run_id).status == "completed"


def test_a_start_at_the_very_end_of_max_wait_is_in_one_run(inline: Inline) -> None:
    """With a clock that can be set, at this moment exactly."""
    echo(inline)
    how: Any = {"debounce": 5, "key": "k", "max_wait": 12, "collect": True}
    first = inline.rival.run("w", 0, **how)
    inline.drain()
    pass_time(inline, 12)
    assert inline.rival.run("w", 1, **how).run_id == first.run_id, "it has not begun"
    go_on(inline)
    assert inline.rival.state(first.run_id).result == [0, 1], "the start did not postpone it"
    last = inline.rival.run("w", 2, **how)
    pass_time(inline, 30)
    go_on(inline)
    assert (last.status, inline.rival.state(last.run_id).result) == ("started", [2])


def test_collected_inputs_are_all_there_as_they_were_written(inline: Inline) -> None:
    echo(inline)
    values = [{"b": 1.0, "a": 10**30}, "x,]", [[]], None]
    for value in values:
        inline.rival.run("w", value, debounce=5, key="k", collect=True, labels={"tenant": "acme"})
    pass_time(inline, 30)
    go_on(inline)
    [run] = inline.rival.runs(labels={"tenant": "acme"})
    assert json.dumps(run.result) == json.dumps(values)
    assert run.gathered == 4


@pytest.mark.parametrize("how", [{"debounce": 5}, {"debounce": 5, "collect": True}, {"batch": 3, "within": 5}])
def test_a_run_of_several_starts_has_the_options_of_the_first_one_and_of_its_workflow(inline: Inline, how: Any) -> None:
    inline.define("w", step(lambda input: input, name="a"), queue="gpu", priority="low")
    rules = [("a", {"timeout": 60})]
    first = inline.rival.run("w", 1, key="k", priority="high", policies=rules, policies_mode="replace", **how)
    inline.rival.run("w", 2, key="k", policies=[("a", {"timeout": 5})], **how)
    with inline.store.database.autocommit() as connection:
        [row] = connection.execute(select(runs.c.id, runs.c.queue, runs.c.priority, runs.c.policies)).all()
    assert (row.id, row.queue, row.priority) == (first.run_id, "gpu", -1)
    assert row.policies == {"rules": [{"match": {"name": "a"}, "options": {"timeout": 60.0}}], "mode": "replace"}
    inline.rival.run("w", 3, key="other", **how)
    with inline.store.database.autocommit() as connection:
        found = connection.execute(select(runs.c.priority, runs.c.policies).where(runs.c.id != first.run_id)).all()
    assert found == [(1, None)]


def test_starts_that_collect_and_starts_that_do_not_share_no_run(inline: Inline) -> None:
    echo(inline)
    for value in ({"n": 1}, {"n": 2}):
        inline.rival.run("w", value, debounce=5, key="k")
        inline.rival.run("w", value, debounce=5, key="k", collect=True)
    pass_time(inline, 30)
    go_on(inline)
    results = [run.result for run in inline.rival.runs()]
    assert sorted(results, key=str) == [[{"n": 1}, {"n": 2}], {"n": 2}]


# -- batches ------------------------------------------------------------------------------------------------


def test_a_batch_begins_when_it_is_full_or_when_its_time_is_up(inline: Inline) -> None:
    echo(inline)
    started = [inline.rival.run("w", number, batch=3, within=10, key="k") for number in range(4)]
    assert [one.status for one in started] == ["started", "gathered", "gathered", "started"]
    inline.drain()
    assert inline.rival.state(started[0].run_id).result == [0, 1, 2]
    assert status(inline, started[3].run_id) == "pending"
    pass_time(inline, 30)
    go_on(inline)
    assert inline.rival.state(started[3].run_id).result == [3]


def test_a_batch_is_not_postponed_by_its_inputs(inline: Inline) -> None:
    echo(inline)
    first = inline.rival.run("w", 0, batch=100, within=10, key="k")
    due = inline.rival.state(first.run_id).due_at
    pass_time(inline, 5)
    inline.rival.run("w", 1, batch=100, within=10, key="k")
    after = inline.rival.state(first.run_id)
    assert after.due_at is not None
    assert due is not None
    assert after.due_at - after.created_at == dt.timedelta(seconds=10)


def test_a_batch_of_one_begins_at_once(inline: Inline) -> None:
    echo(inline)
    inline.rival.run_many("w", [0])
    started = [inline.rival.run("w", number, batch=1, within=10) for number in range(2)]
    inline.drain()
    assert [inline.rival.state(one.run_id).result for one in started] == [[0], [1]]


def test_inputs_that_do_not_fit_into_one_run_begin_another(inline: Inline) -> None:
    echo(inline)
    object.__setattr__(inline.rival.settings, "max_payload", 100)
    started = [inline.rival.run("w", "x" * 40, batch=100, within=10, key="k") for _ in range(3)]
    assert len({one.run_id for one in started}) == 2
    go_on(inline)
    assert inline.rival.state(started[0].run_id).status == "completed", "the full one has begun"


def test_every_input_of_eight_producers_is_in_exactly_one_run(inline: Inline) -> None:
    """While runs begin."""
    echo(inline)
    each = 25
    stop = threading.Event()

    def produce(producer: int) -> None:
        for number in range(each):
            inline.rival.run("w", producer * each + number, batch=7, within=0.01, key="k")

    def begin() -> None:
        while not stop.is_set():
            go_on(inline)

    with ThreadPoolExecutor(9) as pool:
        working = pool.submit(begin)
        for one in [pool.submit(produce, producer) for producer in range(8)]:
            one.result(timeout=60)
        stop.set()
        working.result(timeout=60)
    pass_time(inline, 60)
    go_on(inline)
    runs = inline.rival.runs(limit=1000)
    assert {run.status for run in runs} == {"completed"}
    assert sorted(value for run in runs for value in run.result) == list(range(8 * each))
    assert all(len(run.result) <= 7 for run in runs)


def test_a_run_that_begins_while_a_start_changes_it_has_the_input_of_that_start(postgres_url: str) -> None:
    inline = Inline(postgres_url)
    echo(inline)
    first = inline.rival.run("w", 1, debounce=5, key="k")
    inline.drain()
    pass_time(inline, 6)
    with ThreadPoolExecutor(1) as pool, psycopg.connect(libpq_url(postgres_url)) as theirs:
        assert inline.rival.run("w", 2, debounce=5, key="k", connection=theirs).status == "gathered"
        begun = pool.submit(inline.drain)
        until_blocked(inline.store.database)
        theirs.commit()
        begun.result(20)
    assert status(inline, first.run_id) == "pending"
    pass_time(inline, 6)
    go_on(inline)
    assert first.get() == 2
    inline.close()


def test_a_start_that_meets_a_run_that_begins_makes_another_one(postgres_url: str) -> None:
    inline = Inline(postgres_url)
    echo(inline)
    first = inline.rival.run("w", 1, debounce=5, key="k")
    inline.drain()
    pass_time(inline, 6)
    with ThreadPoolExecutor(2) as pool, psycopg.connect(libpq_url(postgres_url)) as theirs:
        # The statement that begins the run has changed its row when it comes to that of its first step.
        columns, values = "run_id, path, kind, status, created_at", "'a', 'step', 'pending', now()"
        theirs.execute(f"INSERT INTO rival_steps ({columns}) VALUES (%s, {values})", [first.run_id])
        begun = pool.submit(inline.drain)
        until_blocked(inline.store.database)
        again = pool.submit(lambda: inline.rival.run("w", 2, debounce=5, key="k"))
        until_blocked(inline.store.database, 2)
        theirs.rollback()
        begun.result(20)
        second = again.result(20)
    pass_time(inline, 6)
    go_on(inline)
    assert (first.get(), second.status, second.get()) == (1, "started", 2)
    inline.close()


# -- refused ------------------------------------------------------------------------------------------------

WRONG: list[tuple[dict[str, Any], str]] = [
    (
        {"on_conflict": "skip"},
        "Invalid argument on_conflict: it says what happens if `singleton` is taken: give that too.",
    ),
    (
        {"singleton": "k", "on_conflict": "wait"},
        "Invalid argument on_conflict: 'wait' is not one of 'return', 'skip', 'cancel', 'queue'.",
    ),
    (
        {"singleton": ""},
        ("Invalid argument singleton: '' is not a usable text: give 1 to 200 characters, not only white space."),
    ),
    ({"key": "k"}, "Invalid argument key: give it with `debounce` or `batch`."),
    ({"within": 5}, "Invalid argument within: give it with `batch`."),
    ({"max_wait": 5}, "Invalid argument max_wait: give it with `debounce`."),
    ({"collect": True}, "Invalid argument collect: give it with `debounce`."),
    ({"debounce": 5, "batch": 5, "within": 5}, "Invalid argument batch: give either `debounce` or `batch`."),
    (
        {"debounce": 0},
        ("Invalid argument debounce: 0 is not a duration: give 0.001 to 3,153,600,000 seconds, or a timedelta."),
    ),
    ({"debounce": 5, "max_wait": 1}, "Invalid argument max_wait: 1 s is less than debounce, 5 s."),
    ({"debounce": 5, "within": 1}, "Invalid argument within: it is for `batch`: `max_wait` limits a debounced start."),
    ({"batch": 5}, "Invalid argument within: give the seconds that a batch waits for more inputs, as in within=10."),
    ({"batch": 0, "within": 1}, "Invalid argument batch: 0 is not a whole number from 1 to 10,000."),
    ({"batch": 5, "within": 1, "collect": True}, "Invalid argument collect: it is for `debounce`."),
    ({"debounce": 5, "delay": 5}, "Invalid argument delay: several starts share the run: leave it out."),
    ({"debounce": 5, "singleton": "k"}, "Invalid argument singleton: several starts share the run: leave it out."),
    (
        {"batch": 5, "within": 5, "deadline": 60},
        "Invalid argument deadline: several starts share the run: leave it out.",
    ),
]


@pytest.mark.parametrize(("options", "problem"), WRONG)
def test_options_that_do_not_fit_are_refused(inline: Inline, options: dict[str, Any], problem: str) -> None:
    echo(inline)
    with pytest.raises(InvalidArgument, match=whole(problem)):
        inline.rival.run("w", 1, **options)
    assert inline.rival.runs() == []


def test_what_has_no_meaning_elsewhere_is_refused(inline: Inline) -> None:
    echo(inline)
    for options, why in (
        (
            {"singleton": "k"},
            'Invalid argument singleton: only one of many runs could have it: give on_conflict="queue", so that they '
            "wait for one another.",
        ),
        ({"debounce": 5}, "Invalid argument debounce: not of run_many: start each with `run`."),
        ({"batch": 5, "within": 5}, "Invalid argument batch: not of run_many: start each with `run`."),
    ):
        with pytest.raises(InvalidArgument, match=whole(why)):
            inline.rival.run_many("w", [1], **options)  # type: ignore[arg-type]
        define(inline, lambda ctx, o=options: ctx.call("w", 1, **o), "parent")
        run = inline.rival.run("parent")
        assert finish(inline, run.run_id) == "InvalidArgument"
    with pytest.raises(
        InvalidArgument, match=whole("Invalid argument debounce: not of a schedule: each tick is a run.")
    ):
        inline.rival.schedule("w", 60, name="s", debounce=5)
    with pytest.raises(
        InvalidArgument,
        match=whole(
            "Invalid argument on_conflict: a tick whose singleton place is taken is skipped, or waits: give "
            '"skip" or "queue".'
        ),
    ):
        inline.rival.schedule("w", 60, name="s", singleton="k")
    with pytest.raises(
        InvalidArgument,
        match=whole("Invalid argument run_id: several starts share the run: leave it out, and give `key`."),
    ):
        inline.rival.run("w", 1, run_id="r", debounce=5)


def test_another_client_sees_the_same_runs(inline: Inline) -> None:
    echo(inline)
    other = Rival(settings=Settings(database_url=inline.store.database.url), database=inline.store.database)
    first = inline.rival.run("w", 1, debounce=5, key="k")
    assert other.run("w", 2, debounce=5, key="k").run_id == first.run_id
