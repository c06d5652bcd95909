"""Schedules that are paused, fired by hand and backfilled, on every store."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator

import pytest

from rival_client.errors import UnknownSchedule
from rival_workers import step
from tests.support.inline import Clock, Inline

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
    assert inline.rival.backfill_schedule("hourly", since, until) == shown[2:]
    assert inline.rival.backfill_schedule("hourly", since, until) == []
    inline.drain()
    assert {run.run_id for run in inline.rival.runs()} == set(shown)


def test_no_tick_of_the_future_is_started(inline: Inline) -> None:
    now = dt.datetime.now(dt.UTC)
    assert inline.rival.backfill_schedule("hourly", now + HOUR, now + 5 * HOUR, dry_run=True) == []


def test_an_unknown_schedule_is_named_with_the_one_that_was_meant(inline: Inline) -> None:
    for verb in (inline.rival.pause_schedule, inline.rival.resume_schedule, inline.rival.fire_schedule):
        with pytest.raises(UnknownSchedule, match="did you mean 'hourly'"):
            verb("hourl")
