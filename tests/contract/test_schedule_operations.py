"""Schedules that are paused, fired by hand and backfilled, on every store."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator

import pytest

from rival_client.errors import InvalidArgument, NotPossible, UnknownSchedule
from rival_client.model.starts.queues import Route
from rival_workers import step
from tests.support.inline import Clock, Inline
from tests.support.output import whole

HOUR = dt.timedelta(hours=1)


@pytest.fixture(params=["sqlite", "postgres"])
def inline(request: pytest.FixtureRequest) -> Iterator[Inline]:
    url = request.getfixturevalue("file_url" if request.param == "sqlite" else "postgres_url")
    opened = Inline(url)
    opened.define("report", step(lambda input: input, name="a"))
    opened.rival.schedule("report", 3600, name="hourly", input={"n": 1})
    yield opened
    opened.close()


def test_a_paused_schedule_starts_nothing_and_continues_with_its_next_tick(file_url: str) -> None:
    clock = Clock()
    inline = Inline(file_url, clock=clock)
    inline.define("report", step(lambda input: input, name="a"))
    inline.rival.schedule("report", 3600, name="hourly", catch_up="all")
    assert inline.rival.pause_schedule("hourly", by="ann")
    assert not inline.rival.pause_schedule("hourly")
    clock.advance(3 * 3600)
    inline.keeper.run_once()
    assert inline.rival.runs() == []
    [paused] = inline.rival.schedules()
    assert (paused.paused_by, paused.paused_at is not None) == ("ann", True)
    inline.rival.schedule("report", 1800, name="hourly", catch_up="all")
    assert paused.next_at is None
    assert inline.rival.schedules()[0].next_at is None, "a change of its rule does not resume it"
    assert inline.rival.resume_schedule("hourly")
    assert not inline.rival.resume_schedule("hourly")
    clock.advance(1800)
    inline.keeper.run_once()
    assert len(inline.rival.runs()) == 1
    inline.drain()
    inline.close()


def test_a_schedule_can_be_fired_also_while_it_is_paused(inline: Inline) -> None:
    inline.rival.pause_schedule("hourly")
    before = inline.rival.schedules()[0].next_at
    first, second = inline.rival.fire_schedule("hourly"), inline.rival.fire_schedule("hourly")
    assert first != second
    inline.drain()
    assert inline.rival.result(first).result == {"n": 1}
    assert inline.rival.schedules()[0].next_at == before


def test_a_backfill_starts_each_tick_once(inline: Inline) -> None:
    until = dt.datetime.now(dt.UTC).replace(minute=0, second=0, microsecond=0)
    since = until - 3 * HOUR
    shown = inline.rival.backfill_schedule("hourly", since, until, dry_run=True)
    assert len(shown) == 3
    assert inline.rival.runs() == []
    assert inline.rival.backfill_schedule("hourly", since, until, limit=2) == shown[:2]
    assert inline.rival.backfill_schedule("hourly", since, until, dry_run=True) == shown[2:]
    assert inline.rival.backfill_schedule("hourly", since, until) == shown[2:]
    assert inline.rival.backfill_schedule("hourly", since, until) == []
    inline.drain()
    assert {run.run_id for run in inline.rival.runs()} == set(shown)


def test_the_limit_of_a_backfill_does_not_count_ticks_that_have_runs(
    inline: Inline, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rival_client.api.schedules.AT_ONCE", 2)
    until = dt.datetime.now(dt.UTC).replace(minute=0, second=0, microsecond=0)
    since = until - 9 * HOUR
    shown = inline.rival.backfill_schedule("hourly", since, until, dry_run=True)
    inline.rival.backfill_schedule("hourly", since + 3 * HOUR, since + 5 * HOUR)
    left = shown[:3] + shown[5:]
    done = [inline.rival.backfill_schedule("hourly", since, until, limit=4) for _ in range(3)]
    assert done == [left[:4], left[4:], []]


def test_a_run_that_is_fired_or_backfilled_goes_to_the_queue_of_its_workflow(inline: Inline) -> None:
    inline.define("render", step(lambda: None, name="a"), queue="gpu", priority="low")
    inline.rival.schedule("render", 3600, name="renders")
    inline.rival.fire_schedule("renders")
    now = dt.datetime.now(dt.UTC)
    inline.rival.backfill_schedule("renders", now - HOUR, now)
    inline.rival.schedule("render", 3600, name="soon", priority="high")
    inline.rival.fire_schedule("soon")
    assert [one.route for one in inline.doorbell.take()] == [Route("gpu", 1), Route("gpu", 1), Route("gpu", -1)]


def test_a_schedule_whose_singleton_place_is_taken_is_not_fired(inline: Inline) -> None:
    inline.rival.schedule("report", 3600, name="alone", singleton="one", on_conflict="skip")
    first = inline.rival.fire_schedule("alone")
    with pytest.raises(
        NotPossible,
        match=whole(
            "Cannot start run 'alone@…Z+…': another run of 'report' has its singleton place 'one': wait for its "
            "end, or cancel it. Nothing was changed."
        ),
    ):
        inline.rival.fire_schedule("alone")
    assert [run.run_id for run in inline.rival.runs()] == [first]
    inline.drain()
    assert inline.rival.fire_schedule("alone") != first


def test_runs_of_a_schedule_that_queues_are_all_started_by_a_backfill(inline: Inline) -> None:
    inline.rival.schedule("report", 3600, name="queue", singleton="one", on_conflict="queue")
    now = dt.datetime.now(dt.UTC)
    ids = inline.rival.backfill_schedule("queue", now - 3 * HOUR, now)
    fired = inline.rival.fire_schedule("queue")
    assert len(ids) == 3
    assert {run.run_id for run in inline.rival.runs()} == {*ids, fired}
    inline.drain()
    assert {run.status for run in inline.rival.runs()} == {"completed"}


def test_no_tick_of_the_future_is_started(inline: Inline) -> None:
    until = dt.datetime.now(dt.UTC).replace(minute=0, second=0, microsecond=0)
    shown = inline.rival.backfill_schedule("hourly", until - HOUR, until + 48 * HOUR, dry_run=True)
    assert shown
    assert len(shown) <= 3


@pytest.mark.parametrize(
    ("since", "until", "why"),
    [
        (
            HOUR,
            5 * HOUR,
            "Invalid argument since: … is in the future: it is … now, and only ticks that have passed run.",
        ),
        (HOUR, None, "Invalid argument since: … is in the future: it is … now, and only ticks that have passed run."),
        (-HOUR, -5 * HOUR, "Invalid argument since: … is after `until`, …: no tick is between them."),
    ],
)
def test_a_backfill_that_can_have_no_tick_is_refused(
    inline: Inline, since: dt.timedelta, until: dt.timedelta | None, why: str
) -> None:
    now = dt.datetime.now(dt.UTC)
    with pytest.raises(InvalidArgument, match=whole(why)) as caught:
        inline.rival.backfill_schedule("hourly", now + since, None if until is None else now + until)
    assert caught.value.argument == "since"
    assert inline.rival.runs() == []


def test_a_schedule_named_as_a_workflow_is_refused(inline: Inline) -> None:
    [workflow] = {one.workflow for one in inline.rival.schedules()}
    with pytest.raises(
        InvalidArgument,
        match=whole(
            "Invalid argument name: 'report' is the name of a workflow, whose own schedule it would be. Choose "
            "another name."
        ),
    ) as caught:
        inline.rival.schedule(workflow, 60, name=workflow)
    assert caught.value.argument == "name"


def test_an_unknown_schedule_is_named_with_the_one_that_was_meant(inline: Inline) -> None:
    for verb in (inline.rival.pause_schedule, inline.rival.resume_schedule, inline.rival.fire_schedule):
        with pytest.raises(
            UnknownSchedule,
            match=whole("Unknown schedule 'hourl' (did you mean 'hourly'?). `rival schedule ls` lists them."),
        ):
            verb("hourl")
