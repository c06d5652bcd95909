"""When ticks are, and which of them get a run."""

from __future__ import annotations

import datetime as dt
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rival_client.model.cron import Rule, checked_rule
from rival_client.model.starts.planned_schedules import (
    MAX_NAME,
    MOST_MISSED,
    checked_catch_up,
    checked_name,
    run_id_at,
    ticks_to_run,
)
from tests.support.output import whole


def utc(text: str) -> dt.datetime:
    return dt.datetime.fromisoformat(text).replace(tzinfo=dt.UTC)


def ticks(rule: Rule, first: str, last: str) -> list[str]:
    return [f"{tick:%d %H:%M}" for tick in rule.between(utc(first), utc(last))]


BERLIN = "Europe/Berlin"


def test_a_daily_tick_follows_the_local_clock_through_the_year() -> None:
    rule = checked_rule("0 2 * * *", BERLIN)
    assert rule.next_after(utc("2026-01-30T12:00")) == utc("2026-01-31T01:00")
    assert rule.next_after(utc("2026-07-30T12:00")) == utc("2026-07-31T00:00")


def test_what_falls_into_the_hour_that_is_left_out_runs_once_right_after_it() -> None:
    """On 2026-03-29 the clock goes from 02:00 CET to 03:00 CEST, which is 01:00 UTC."""
    assert ticks(checked_rule("30 2 * * *", BERLIN), "2026-03-28T00:00", "2026-03-30T12:00") == [
        "28 01:30",
        "29 01:00",
        "30 00:30",
    ]


def test_what_falls_into_the_hour_that_comes_twice_runs_once() -> None:
    """On 2026-10-25 the clock goes from 03:00 CEST back to 02:00 CET, which is 01:00 UTC."""
    assert ticks(checked_rule("30 2 * * *", BERLIN), "2026-10-24T00:00", "2026-10-26T12:00") == [
        "24 00:30",
        "25 00:30",
        "26 01:30",
    ]


@pytest.mark.parametrize("day", ["2026-03-29", "2026-10-25"])
def test_what_runs_every_quarter_of_an_hour_does_so_on_both_days(day: str) -> None:
    found = list(checked_rule("*/15 * * * *", BERLIN).between(utc(f"{day}T00:00"), utc(f"{day}T04:00")))
    assert len(found) == 17
    assert {later - earlier for earlier, later in pairwise(found)} == {dt.timedelta(minutes=15)}


def test_an_hourly_tick_has_a_run_id_of_its_own_in_each_of_the_two_equal_hours() -> None:
    found = list(checked_rule("0 * * * *", BERLIN).between(utc("2026-10-25T00:00"), utc("2026-10-25T01:00")))
    assert [run_id_at("n", tick) for tick in found] == ["n@2026-10-25T00:00:00Z", "n@2026-10-25T01:00:00Z"]


CHANGES = [
    ("30 2 * * *", BERLIN, "2026-10-24T00:00"),
    ("30 2 * * *", BERLIN, "2026-03-28T00:00"),
    ("0,30 2,3 * * *", BERLIN, "2026-03-28T00:00"),
    ("*/20 2 * * *", BERLIN, "2026-10-24T00:00"),
    ("30 1 * * *", "America/New_York", "2026-10-31T00:00"),
    ("45 1 * * *", "Australia/Lord_Howe", "2026-04-03T00:00"),
]


@pytest.mark.parametrize(("cron", "zone", "start"), CHANGES)
def test_ticks_are_the_same_when_computed_in_the_middle_of_a_change_of_the_clock(
    cron: str, zone: str, start: str
) -> None:
    rule, begin = checked_rule(cron, zone), utc(start)
    all_of_them = list(rule.between(begin, begin + dt.timedelta(days=4)))
    assert all_of_them == sorted(set(all_of_them))
    for minutes in range(0, 2 * 24 * 60, 5):
        at = begin + dt.timedelta(minutes=minutes)
        assert rule.next_after(at) == next(tick for tick in all_of_them if tick > at)


def test_an_interval_does_not_depend_on_when_it_is_computed() -> None:
    rule = checked_rule(dt.timedelta(minutes=10))
    assert rule.next_after(utc("2026-01-01T00:03:07.5")) == utc("2026-01-01T00:10")
    assert rule.next_after(utc("2026-01-01T00:10")) == utc("2026-01-01T00:20")


RULES = st.sampled_from(
    [
        Rule(every=1),
        Rule(every=7),
        Rule(every=86_400),
        Rule("*/5 * * * *"),
        Rule("30 2 * * *", timezone=BERLIN),
        Rule("0 */2 * * *", timezone="America/New_York"),
        Rule("15 1,2,3 * * 0", timezone="Australia/Lord_Howe"),
    ]
)
TIMES = st.datetimes(dt.datetime(2020, 1, 1), dt.datetime(2035, 1, 1), timezones=st.just(dt.UTC))


@given(RULES, TIMES)
def test_going_on_from_a_tick_is_the_same_as_going_on_without_a_stop(rule: Rule, at: dt.datetime) -> None:
    first = rule.next_after(at)
    second = rule.next_after(first)
    assert at < first < second
    assert list(rule.between(at + dt.timedelta(microseconds=1), second)) == [first, second]


@pytest.mark.parametrize(
    ("catch_up", "found"),
    [("none", []), ("last", ["01 03:00"]), ("all", ["01 01:00", "01 02:00", "01 03:00"])],
)
def test_missed_ticks_are_caught_up_with_as_the_policy_says(catch_up: str, found: list[str]) -> None:
    missed = ticks_to_run(
        Rule("0 * * * *"), checked_catch_up(catch_up), utc("2026-01-01T01:00"), utc("2026-01-01T03:30")
    )
    assert [f"{tick:%d %H:%M}" for tick in missed] == found


@pytest.mark.parametrize("catch_up", ["none", "last", "all"])
def test_a_tick_that_is_merely_late_runs_whatever_the_policy(catch_up: str) -> None:
    late = ticks_to_run(Rule("0 * * * *"), checked_catch_up(catch_up), utc("2026-01-01T01:00"), utc("2026-01-01T01:01"))
    assert late == [utc("2026-01-01T01:00")]


def test_the_last_one_is_the_one_that_is_merely_late_if_there_is_one() -> None:
    found = ticks_to_run(Rule("0 * * * *"), "last", utc("2026-01-01T01:00"), utc("2026-01-01T03:00:05"))
    assert found == [utc("2026-01-01T03:00")]


@pytest.mark.parametrize("rule", [Rule(every=1), Rule("* * * * *")])
def test_of_very_many_missed_ticks_the_latest_are_caught_up_with(rule: Rule) -> None:
    now = utc("2026-01-03T00:00")
    found = ticks_to_run(rule, "all", utc("2026-01-01T00:00"), now)
    assert MOST_MISSED <= len(found) <= MOST_MISSED + 61
    assert found[-1] == now
    assert found == list(rule.between(found[0], now))


@pytest.mark.parametrize(
    ("when", "zone", "cure"),
    [
        (
            "61 * * * *",
            "UTC",
            (
                "Invalid argument when: '61 * * * *' is not a valid cron expression (bad minute): write five fields "
                'as in "*/5 * * * *" (minute, hour, day of month, month, day of week).'
            ),
        ),
        (
            "* * * *",
            "UTC",
            (
                "Invalid argument when: '* * * *' is not a cron expression: write five fields as in \"*/5 * * * *\" "
                "(minute, hour, day of month, month, day of week)."
            ),
        ),
        (
            "* * * * * *",
            "UTC",
            (
                "Invalid argument when: '* * * * * *' is not a cron expression: write five fields as in \"*/5 * * * "
                '*" (minute, hour, day of month, month, day of week).'
            ),
        ),
        (
            "0 0 31 2 *",
            "UTC",
            (
                "Invalid argument when: '0 0 31 2 *' is not a valid cron expression (bad day-of-month): write five "
                'fields as in "*/5 * * * *" (minute, hour, day of month, month, day of week).'
            ),
        ),
        (
            "0 0 * * *",
            "Mars/Olympus",
            (
                "Invalid argument timezone: 'Mars/Olympus' is not a time zone that is known here: write it as in "
                "'Europe/Berlin' (or install the package tzdata)."
            ),
        ),
        (
            "0 0 * * *",
            None,
            (
                "Invalid argument timezone: None is not a time zone that is known here: write it as in "
                "'Europe/Berlin' (or install the package tzdata)."
            ),
        ),
        (
            0.5,
            "UTC",
            (
                "Invalid argument when: 0.5 is not an interval: an interval is whole seconds, at least 1 and at "
                "most 315360000."
            ),
        ),
        (
            1.5,
            "UTC",
            (
                "Invalid argument when: 1.5 is not an interval: an interval is whole seconds, at least 1 and at "
                "most 315360000."
            ),
        ),
        (
            float("nan"),
            "UTC",
            (
                "Invalid argument when: nan is not an interval: an interval is whole seconds, at least 1 and at "
                "most 315360000."
            ),
        ),
        (
            float("inf"),
            "UTC",
            (
                "Invalid argument when: inf is not an interval: an interval is whole seconds, at least 1 and at "
                "most 315360000."
            ),
        ),
        (
            60,
            BERLIN,
            "Invalid argument timezone: an interval has no time zone: give a cron expression, or leave it out.",
        ),
        (
            None,
            "UTC",
            (
                "Invalid argument when: None is not a cron expression, seconds or a timedelta: write five fields as "
                'in "*/5 * * * *" (minute, hour, day of month, month, day of week).'
            ),
        ),
        (
            True,
            "UTC",
            (
                "Invalid argument when: True is not a cron expression, seconds or a timedelta: write five fields as "
                'in "*/5 * * * *" (minute, hour, day of month, month, day of week).'
            ),
        ),
    ],
)
def test_what_makes_no_sense_is_refused_with_its_cure(when: object, zone: object, cure: str) -> None:
    with pytest.raises(ValueError, match=whole(cure)):
        checked_rule(when, zone)


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("", "'' is not a usable text: give 1 to 179 characters, not only white space."),
        ("n" * (MAX_NAME + 1), f"'{'n' * 59}… has 180 characters; give at most 179."),
        ("a\0b", r"'a\x00b' holds a NUL character; leave it out."),
        (7, "7 is not text: give a string of 1 to 179 characters."),
    ],
)
def test_a_name_must_leave_room_for_the_tick_in_the_run_id(name: object, problem: str) -> None:
    with pytest.raises(ValueError, match=whole(f"Invalid argument name: {problem}")):
        checked_name(name)
