from __future__ import annotations

import pytest

from tests.support.lock_order import WrongOrder, check, locks_of

TOPIC = "SELECT pg_advisory_xact_lock_shared(%(a)s, hashtext(%(b)s))"
SHARED = "SELECT pg_advisory_xact_lock_shared(hashtextextended(%(a)s, %(b)s))"
EXCLUSIVE = "SELECT pg_advisory_xact_lock(hashtextextended(%(a)s, %(b)s))"
TRIED = "SELECT id FROM unnest(%(a)s) AS id WHERE pg_try_advisory_xact_lock(hashtextextended(id, %(b)s))"
STEP, RUN = "UPDATE rival_steps SET status = %(a)s", "SELECT id FROM rival_runs WHERE id = %(a)s FOR UPDATE"


def _take(*statements: str) -> None:
    taken: list[str] = []
    for statement in statements:
        lock = locks_of(statement)
        if lock is not None:
            check(taken, lock)
            taken.append(lock)


@pytest.mark.parametrize(
    "statements",
    [
        (TOPIC, SHARED, STEP, RUN),
        (TOPIC, EXCLUSIVE, RUN, STEP),
        (STEP,),
        (TRIED, STEP, RUN),
        (SHARED, STEP, RUN, SHARED, STEP, RUN),
    ],
)
def test_the_right_orders_pass(statements: tuple[str, ...]) -> None:
    _take(*statements)


@pytest.mark.parametrize("statements", [(STEP, RUN), (SHARED, TOPIC), (SHARED, EXCLUSIVE), (STEP, EXCLUSIVE)])
def test_the_wrong_orders_are_found(statements: tuple[str, ...]) -> None:
    with pytest.raises(WrongOrder):
        _take(*statements)


def test_what_is_skipped_when_it_is_locked_is_not_waited_for() -> None:
    assert locks_of(RUN + " SKIP LOCKED") is None
