"""`rival recover`, as an operator types it after an outage."""

from __future__ import annotations

from tests.acceptance.conftest import Cli


def test_recover_says_what_it_found_and_that_nobody_is_there_to_do_it(shop: Cli) -> None:
    shop("run", "greet", '{"name": "ada"}')
    none = ("resumed", "lost", "parked", "suspended", "orphans", "waiting_for_time", "waiting_for_events")
    shop("recover", "--json").prints_json({"republished": 1, **dict.fromkeys(none, 0), "live_executors": 0})
    shop("recover").prints(
        """
        1 run(s), step(s) and event(s) waited for a worker: they are rung for at once (0 of them had waited for their time, and go on)
        0 attempt(s) belong to dead executors: live workers take them over within a lease
        0 are parked: no worker had their code (see `rival ls`)
        0 child run(s) of ended parents are still to be cancelled
        0 run(s) are suspended
        0 step(s) wait for their time, 0 for an event
        no executor is alive: nothing of this happens until you start a worker
        """  # noqa: E501
    )
