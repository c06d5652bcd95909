"""Near and far timers, due times and the back-off of the keeper."""

from __future__ import annotations

import pytest

from rival_client.model.timers import (
    EARLY,
    LEAD,
    NEVER_PUBLISHED,
    NextLook,
    backoff,
    first_rings,
    is_due,
    is_near,
    look_at,
)


@pytest.mark.parametrize(("seconds", "expected"), [(None, False), (0.0, True), (30.0, True), (30.1, False)])
def test_a_timer_within_the_limit_is_near(seconds: float | None, expected: bool) -> None:
    assert is_near(seconds, 30.0) is expected


@pytest.mark.parametrize(("left", "expected"), [(None, True), (-1.0, True), (EARLY, True), (EARLY * 2, False)])
def test_a_timer_is_due_at_its_time_within_the_precision_of_countdowns(left: float | None, expected: bool) -> None:
    assert is_due(left) is expected


def test_the_keeper_looks_at_a_published_timer_after_it_and_at_a_far_one_before_it() -> None:
    assert look_at(20.0, True, grace=10.0) == NextLook(30.0, 0)
    assert look_at(60.0, False, grace=10.0) == NextLook(60.0 - LEAD, NEVER_PUBLISHED)


def test_a_row_without_a_grace_period_was_never_published() -> None:
    assert (first_rings(0), first_rings(10.0)) == (NEVER_PUBLISHED, 0)


def test_looks_at_the_same_row_double_up_to_the_longest() -> None:
    assert [backoff(rings, 10.0, 60.0) for rings in (-1, 0, 1, 2, 3, 50)] == [10.0, 10.0, 20.0, 40.0, 60.0, 60.0]
