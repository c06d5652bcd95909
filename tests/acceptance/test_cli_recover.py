"""`rival recover`, as an operator types it after an outage."""

from __future__ import annotations

from tests.acceptance.conftest import Cli


def test_recover_says_what_it_found_and_that_nobody_is_there_to_do_it(shop: Cli) -> None:
    shop("run", "greet", '{"name": "ada"}')
    found = shop("recover", "--json").json
    assert found == {
        "rung": 1, "resumed": 0, "lost": 0, "parked": 0, "suspended": 0, "orphans": 0, "waiting_for_time": 0,
        "waiting_for_events": 0, "live_executors": 0,
    }  # fmt: skip
    said = shop("recover").out
    assert "1 run(s), step(s) and event(s) waited for a worker" in said
    assert "until you start a worker" in said
