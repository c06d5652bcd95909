"""Concurrency inside a flow, as other engines test it. Each flow suspends, so that its result is that of a replay."""

from __future__ import annotations

import pytest

from tests.scenarios.conftest import Scenario
from tests.scenarios.effects import notes
from tests.support.workers import wait_until

pytestmark = pytest.mark.slow


def test_gathered_steps_of_one_name_each_keep_their_own_result(scenario: Scenario) -> None:
    assert scenario.run("gather-many-steps", 20) == [2 * n for n in range(20)]


def test_gathered_steps_that_end_in_the_reverse_order_keep_their_places(scenario: Scenario) -> None:
    assert scenario.run("gather-steps-of-several-names") == [0, 2, 4, 6, 20]


def test_steps_children_events_timers_and_lanes_can_be_gathered_together(scenario: Scenario) -> None:
    run_id = scenario.start("gather-many-things")
    scenario.rival.send_event("things", {"n": 5}, key=run_id)
    assert scenario.end(run_id).result == [2, 4, 6, 8, {"n": 5}, None, 0, 4, 8]


def test_gathered_children_of_one_workflow_keep_their_places(scenario: Scenario) -> None:
    assert scenario.run("gather-children-of-one-workflow", 10) == [2 * n for n in range(10)]


def test_a_sync_flow_waits_for_many_children_at_once(scenario: Scenario) -> None:
    assert scenario.run("sync-children-at-once", 25) == [2 * n for n in range(25)]


def test_gather_can_keep_exceptions_as_results(scenario: Scenario) -> None:
    assert scenario.run("gather-keeps-exceptions") == [2, "ChildFailed", "StepFailed"]


def test_wait_returns_when_the_first_has_completed(scenario: Scenario) -> None:
    assert scenario.run("wait-first-completed") == [True, True, 2]


def test_wait_returns_at_the_first_exception(scenario: Scenario) -> None:
    assert scenario.run("wait-first-exception") == [True, True, True]


def test_wait_returns_when_all_have_completed(scenario: Scenario) -> None:
    assert scenario.run("wait-all") == [4, 0, [0, 2, 4, 6]]


def test_wait_with_a_timeout_leaves_the_rest_pending(scenario: Scenario) -> None:
    assert scenario.run("wait-with-timeout") == [1, 1]


def test_as_completed_gives_lanes_in_the_order_of_their_ends(scenario: Scenario) -> None:
    assert scenario.run("as-completed") == [1, 0, 2]


def test_wait_for_ends_a_sleep_that_takes_too_long(scenario: Scenario) -> None:
    assert scenario.run("wait-for-times-out") == "timed out"


def test_a_timeout_block_ends_a_wait_for_an_event(scenario: Scenario) -> None:
    assert scenario.run("timeout-block") == ["timed out", "afterwards"]


def test_a_lock_lets_one_lane_in_at_a_time(scenario: Scenario) -> None:
    scenario.run("lock", scenario.file)
    assert notes(scenario.file) == [f"{name}-{way}" for name in "abc" for way in ("in", "out")]


def test_a_lane_can_give_up_on_a_lock(scenario: Scenario) -> None:
    assert scenario.run("lock-with-timeout") == ["held", "gave up"]


def test_a_semaphore_limits_how_many_lanes_are_inside(scenario: Scenario) -> None:
    assert scenario.run("semaphore", 6) == 2


def test_a_queue_carries_values_from_lane_to_lane(scenario: Scenario) -> None:
    assert scenario.run("queue") == [0, 2, 4, 6, 8]


def test_concurrent_sleeps_end_in_the_order_of_their_lengths(scenario: Scenario) -> None:
    assert scenario.run("order-of-sleeps") == [1, 2, 3]


def test_lanes_take_turns_in_one_order(scenario: Scenario) -> None:
    assert scenario.run("order-of-lanes") == [f"{name}{part}" for part in range(3) for name in "abc"]


def test_a_sleeping_lane_can_be_cancelled(scenario: Scenario) -> None:
    assert scenario.run("cancel-a-sleeping-lane") == ["cancelled", "and on"]


def test_a_shielded_child_goes_on_when_its_waiter_gives_up(scenario: Scenario) -> None:
    assert scenario.run("shield") == ["impatient", 42]


def test_a_failure_in_a_task_group_cancels_the_other_lanes(scenario: Scenario) -> None:
    assert scenario.run("task-group") == ["cancelled", "StepFailed"]


def test_lanes_of_steps_and_sleeps_do_each_step_once(scenario: Scenario) -> None:
    results = scenario.run("lanes-of-steps-and-sleeps", scenario.file)
    assert results == [[f"lane{n}-1", f"lane{n}-2"] for n in range(4)]
    assert sorted(notes(scenario.file)) == sorted(text for lane in results for text in lane)


def test_the_first_of_two_children_wins_and_the_other_is_cancelled(scenario: Scenario) -> None:
    run_id = scenario.start("first-of-children")
    assert scenario.end(run_id).result == 4
    children = scenario.rival.tree(run_id).children
    wait_until(lambda: sorted(scenario.rival.state(c.run_id).status for c in children) == ["cancelled", "completed"])


def test_of_a_sleep_and_an_event_the_sleep_wins_when_no_event_comes(scenario: Scenario) -> None:
    assert scenario.run("sleep-or-event", 0.1) == "sleep"


def test_of_a_sleep_and_an_event_the_event_wins_when_it_comes_first(scenario: Scenario) -> None:
    run_id = scenario.start("sleep-or-event", 60)
    scenario.rival.send_event("go", 7, key=run_id)
    assert scenario.end(run_id).result == ["event", 7]


def test_a_spawned_child_has_an_id_and_gives_its_result_later(scenario: Scenario) -> None:
    run_id = scenario.start("spawned-result-later")
    child, result = scenario.end(run_id).result
    assert (scenario.rival.state(child).parent_run_id, result) == (run_id, 8)


def test_spawned_children_can_be_awaited_in_any_order(scenario: Scenario) -> None:
    assert scenario.run("async-spawned-result-later") == [4, 2, 0]
