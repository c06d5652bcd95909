"""`rival recover` after an outage."""

from __future__ import annotations

from tests.acceptance.conftest import Cli


def test_recover_reports_what_it_found_and_that_no_executor_is_alive(shop: Cli) -> None:
    shop("run", "greet", '{"name": "ada"}')
    none = ("resumed", "lost", "parked", "suspended", "orphans", "waiting_for_time", "waiting_for_events")
    shop("recover", "--json").prints_json({"republished": 1, **dict.fromkeys(none, 0), "live_executors": 0})
    shop("recover").prints(
        """
        1 run(s), step(s) and event(s) waited for a worker: their messages are published now (0 of them had waited until a time that has passed)
        0 attempt(s) belong to dead executors: live workers take them over within a lease
        0 are parked: no worker had their code (see `rival ls`)
        0 child run(s) of ended parents will be cancelled
        0 run(s) are suspended
        0 step(s) wait until a time, 0 for an event
        no executor is alive: start a worker, which does all of this
        """  # noqa: E501
    )
