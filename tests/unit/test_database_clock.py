"""The estimate of the database's clock: never ahead of it, and as precise as the quickest answer."""

from __future__ import annotations

import random

import pytest

from rival_workers.store.database_clock import DRIFT, OLD, DatabaseClock

#: What the database's clock shows when the own clock shows 0.
EPOCH = 1_700_000_000.0
#: The precision of seconds since the epoch as a float.
EXACT = 1e-6


class Clocks:
    def __init__(self) -> None:
        self.own, self.ahead = 5_000.0, EPOCH
        self.clock = DatabaseClock(lambda: self.own)

    @property
    def database(self) -> float:
        return self.own + self.ahead

    def answer(self, took: float) -> None:
        """An answer that arrives so many seconds after it was written."""
        at = self.database
        self.own += took
        self.clock.read(at)


def test_the_quickest_answer_decides_and_not_the_last_one() -> None:
    clocks = Clocks()
    for took in (0.020, 0.001, 0.050):
        clocks.answer(took)
    left = clocks.clock.until(clocks.database + 10)
    assert left == pytest.approx(10.001, abs=0.050 * DRIFT + EXACT)


@pytest.mark.parametrize("drift", [DRIFT, 0.0, -DRIFT])
def test_a_time_is_never_expected_too_early_even_if_the_clocks_drift_apart(drift: float) -> None:
    clocks, chance = Clocks(), random.Random(1)
    for _ in range(1_000):
        clocks.answer(chance.expovariate(100.0))
        passed = chance.uniform(0.0, OLD / 10)
        clocks.own += passed
        clocks.ahead += passed * drift
        assert clocks.clock.until(clocks.database + 5) >= 5 - EXACT


def test_a_clock_that_is_set_forward_is_followed_at_once() -> None:
    clocks = Clocks()
    clocks.answer(0.001)
    clocks.ahead += 3
    clocks.answer(0.002)
    assert clocks.clock.until(clocks.database + 10) == pytest.approx(10.002, abs=EXACT)


def test_a_clock_that_is_set_back_is_followed_when_the_estimate_is_old() -> None:
    clocks = Clocks()
    clocks.answer(0.001)
    clocks.ahead -= 3
    clocks.answer(0.002)
    assert clocks.clock.until(clocks.database + 10) < 8
    clocks.own += OLD
    clocks.answer(0.002)
    assert clocks.clock.until(clocks.database + 10) == pytest.approx(10.002, abs=EXACT)
