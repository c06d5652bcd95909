"""Every composite on a real fleet and in library mode, with and without going on in place: the same as in process."""

from __future__ import annotations

import pytest

from rival_client import Rival
from rival_workers import embedded
from rival_workers.definition.default_registry import default_registry
from tests.support import gallery
from tests.support.chaos import assert_nothing_is_stuck, wait_for_all
from tests.support.effort import long_but_first
from tests.support.gallery import CASES, assert_as_expected
from tests.support.workers import Workers


def run_all(rival: Rival) -> dict[str, str]:
    runs = {name: rival.run(case.workflow, case.input).run_id for name, case in CASES.items()}
    wait_for_all(rival, runs.values(), timeout=60)
    return runs


@pytest.mark.slow
@pytest.mark.parametrize("budget", [1, 0], ids=["in place", "by messages"])
def test_control_flow_on_a_fleet_goes_as_it_is_written(rival: Rival, workers: Workers, budget: int) -> None:
    workers.start(gallery.__file__, 2, continuation_budget=budget)
    for name, run_id in run_all(rival).items():
        assert_as_expected(CASES[name], rival.state(run_id))
    assert_nothing_is_stuck(rival)


@pytest.mark.slow
@pytest.mark.parametrize("budget", long_but_first(1.0, 0.0), ids=["in place", "by messages"])
def test_control_flow_in_library_mode_goes_as_it_is_written(budget: float) -> None:
    with embedded(registry=default_registry, continuation_budget=budget) as rival:
        for name, run_id in run_all(rival).items():
            assert_as_expected(CASES[name], rival.state(run_id))
