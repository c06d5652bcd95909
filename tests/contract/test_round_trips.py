"""How often the happy path asks the database: a step is one round trip and one commit, and no guarantee may add one."""

from __future__ import annotations

import pytest

from rival_workers import step
from tests.support.inline import Inline
from tests.support.round_trips import round_trips


def nothing() -> None:
    pass


def test_a_stale_start_is_one_round_trip(inline: Inline) -> None:
    if not inline.store.database.is_postgres:
        pytest.skip("SQLite has no round trips")
    inline.define("w", step(nothing, name="a"))
    inline.rival.run("w", run_id="r")
    [message] = inline.doorbell.take()
    inline.deliver(message)
    with round_trips(inline.store) as asked:
        inline.deliver(message)
    assert asked == ["rival_begin_run"]
