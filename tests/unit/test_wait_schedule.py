"""The arithmetic of one wait, without waiting."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rival_client.broker.wait_schedule import DEFAULT_POLL_INTERVAL, DEFAULT_TIMEOUT, WaitSchedule
from tests.support.output import whole


def test_the_defaults_are_five_minutes_and_a_quarter_of_a_second() -> None:
    assert (DEFAULT_TIMEOUT, DEFAULT_POLL_INTERVAL) == (300.0, 0.25)


def test_it_looks_every_interval_and_a_last_time_at_the_deadline() -> None:
    schedule = WaitSchedule.starting(100.0, timeout=1.0, poll_interval=0.4)
    assert schedule.pause(100.0) == 0.4
    assert schedule.pause(100.8) == pytest.approx(0.2)
    assert schedule.pause(101.0) is None
    assert schedule.pause(999.0) is None


def test_a_wait_without_a_timeout_never_gives_up() -> None:
    schedule = WaitSchedule.starting(0.0, timeout=None, poll_interval=0.25)
    assert schedule.pause(1e12) == 0.25


@pytest.mark.parametrize("timeout", [0, -1])
def test_a_timeout_of_nothing_looks_once(timeout: float) -> None:
    assert WaitSchedule.starting(5.0, timeout, 0.25).pause(5.0) is None


@pytest.mark.parametrize("interval", [0, -0.1])
def test_an_interval_of_nothing_is_refused(interval: float) -> None:
    problem = f"{interval} is not an interval: give more than 0 and at most 86,400 seconds."
    with pytest.raises(ValueError, match=whole(f"Invalid argument poll_interval: {problem}")):
        WaitSchedule.starting(0.0, 1.0, interval)


@given(st.floats(0.001, 1000), st.floats(0.001, 100))
def test_however_it_is_set_it_ends_at_the_deadline_and_not_before(timeout: float, interval: float) -> None:
    schedule = WaitSchedule.starting(0.0, timeout, max(interval, timeout / 500))
    now, looks = 0.0, 0
    while (pause := schedule.pause(now)) is not None:
        assert 0 < pause <= schedule.poll_interval
        now += pause
        looks += 1
    assert now == pytest.approx(timeout)
    assert looks <= 502
