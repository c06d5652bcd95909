"""Failures, events, children, replay and operators, as other engines test them."""

from __future__ import annotations

from typing import Any

import pytest

from rival_client import InvalidInput
from tests.scenarios.conftest import Scenario
from tests.scenarios.effects import notes
from tests.support.output import is_printed
from tests.support.workers import wait_until

pytestmark = pytest.mark.slow


def sleeping(scenario: Scenario, run_id: str) -> None:
    wait_until(lambda: scenario.rival.state(run_id).status == "suspended", what=f"{run_id} waits")


# -- inputs and results -----------------------------------------------------------------------------------


def test_a_typed_input_and_a_typed_result_round_trip(scenario: Scenario) -> None:
    assert scenario.run("typed", {"number": 7, "lines": ["a", "b"]}) == {"number": 7, "total": 3.0}


@pytest.mark.parametrize("bad", [{}, {"number": "x"}, {"number": 1, "kind": "other"}, [1], None])
def test_an_input_that_does_not_fit_is_refused_before_a_run_exists(scenario: Scenario, bad: Any) -> None:
    before = len(scenario.rival.runs(workflow="typed"))
    with pytest.raises(InvalidInput):
        scenario.rival.run("typed", bad)
    assert len(scenario.rival.runs(workflow="typed")) == before


def test_a_run_may_return_nothing(scenario: Scenario) -> None:
    assert scenario.run("returns-nothing") is None


def test_a_result_that_is_not_json_is_the_failure_of_its_step(scenario: Scenario) -> None:
    error = scenario.failure("returns-a-set")
    assert error["type"] == "InvalidPayload"
    assert is_printed(["the result of step 'bad' of run '…' is not JSON: set is not JSON"], [error["message"]])


def test_a_flow_sees_keys_and_numbers_of_a_result_as_they_were(scenario: Scenario) -> None:
    names, found = scenario.run("keys-in-order")
    assert names == ["zulu", "alpha", "m"]
    assert repr(found) == "{'zulu': 1, 'alpha': 1e+300, 'm': [{'b': 1.0, 'a': -0.0}]}"


# -- failures ---------------------------------------------------------------------------------------------


def test_a_step_is_tried_again_until_it_succeeds(scenario: Scenario) -> None:
    assert scenario.run("flaky", {"file": scenario.file, "good": 3}) == 3
    assert notes(scenario.file) == ["try1", "try2", "try3"]


def test_a_step_is_not_tried_more_often_than_it_may(scenario: Scenario) -> None:
    assert scenario.failure("flaky", {"file": scenario.file, "good": 9})["message"] == "not yet"
    assert notes(scenario.file) == ["try1", "try2", "try3"]


def test_an_exception_with_a_constructor_of_its_own_is_stored(scenario: Scenario) -> None:
    error = scenario.failure("odd-error")
    assert (error["type"], error["message"]) == ("OddError", "odd (7)")
    assert error["traceback"].splitlines()[2] == '    raise OddError(7, reason="odd")'


def test_a_keyboard_interrupt_in_a_step_fails_the_step_and_the_worker_goes_on(scenario: Scenario) -> None:
    assert scenario.failure("interrupted")["type"] == "KeyboardInterrupt"
    assert scenario.run("returns-nothing") is None


def test_sys_exit_in_an_async_step_fails_the_step_and_later_async_steps_run(scenario: Scenario) -> None:
    assert [scenario.failure("exits")["type"] for _ in range(4)] == ["SystemExit"] * 4
    assert [scenario.run("plain-async") for _ in range(8)] == ["fine"] * 8


def test_a_step_that_takes_too_long_is_tried_again_and_its_late_result_is_dropped(scenario: Scenario) -> None:
    assert scenario.run("too-slow", scenario.file) == "in time"
    assert notes(scenario.file) == ["begun1", "begun2"]


def test_the_handler_of_a_failure_runs_once_before_the_run_fails(scenario: Scenario) -> None:
    assert scenario.failure("handled", scenario.file)["type"] == "OddError"
    assert notes(scenario.file) == ["handler-saw-OddError"]


def test_a_flow_can_catch_the_failure_of_its_step(scenario: Scenario) -> None:
    assert scenario.run("catches-a-step") == "OddError"


def test_a_flow_can_catch_the_failure_of_its_child(scenario: Scenario) -> None:
    assert scenario.run("catches-a-child") == "OddError"


def test_a_flow_that_does_not_catch_the_failure_of_its_child_fails_with_it(scenario: Scenario) -> None:
    error = scenario.failure("fails-with-its-child")
    assert error["type"] == "ChildFailed"
    child = "child run '…/call:odd-error' failed at step 'odd': OddError: odd (7)"
    assert is_printed([f"fails-with-its-child/call:odd-error: {child}"], [error["message"]])


# -- replay -----------------------------------------------------------------------------------------------


def test_ids_time_and_chance_are_the_same_on_replay(scenario: Scenario) -> None:
    scenario.run("same-on-replay", scenario.file)
    first, second = notes(scenario.file)
    assert first == second


def test_a_flow_that_takes_another_path_on_replay_is_stopped(scenario: Scenario) -> None:
    assert scenario.failure("changes-its-mind")["type"] == "FlowChanged"


@pytest.mark.parametrize("workflow", ["swallows", "async-swallows"])
def test_a_flow_that_suspends_inside_try_except_finally_does_nothing_there(scenario: Scenario, workflow: str) -> None:
    assert scenario.run(workflow, scenario.file) == "done"
    assert notes(scenario.file) == ["acquire", "work", "release"]


def test_a_flow_with_many_checkpoints_goes_on_after_a_sleep(scenario: Scenario) -> None:
    assert scenario.run("many-checkpoints", 300) == sum(range(300))


def test_a_flow_continues_with_a_new_input_under_the_same_id(scenario: Scenario) -> None:
    run_id = scenario.start("counts-down", 5)
    assert scenario.end(run_id).result == "done"
    paths = [step.path for step in scenario.rival.state(run_id).steps]
    assert paths == ["counts-down", "counts-down/str"], "the checkpoints of earlier rounds are gone"


# -- events -----------------------------------------------------------------------------------------------


def test_signals_of_two_topics_come_in_the_order_of_sending_and_none_is_lost(scenario: Scenario) -> None:
    run_id = scenario.start("reads-signals")
    sent = [("zebra" if n % 3 else "add", str(n)) for n in range(12)]
    for topic, payload in [*sent, ("zebra", "stop")]:
        scenario.rival.send_event(topic, payload, key=run_id)
    assert scenario.end(run_id).result == [f"{topic}:{payload}" for topic, payload in sent]


def test_an_event_that_comes_before_its_wait_is_kept_for_it(scenario: Scenario) -> None:
    run_id = scenario.start("two-events")
    scenario.rival.send_event("two", 2, key=run_id)
    scenario.rival.send_event("one", 1, key=run_id)
    assert scenario.end(run_id).result == [1, 2]


def test_a_wait_for_an_event_ends_when_its_time_is_up(scenario: Scenario) -> None:
    assert scenario.run("event-times-out") is None


# -- ids, children, fan-out -------------------------------------------------------------------------------


def test_starting_a_run_id_twice_is_one_run(scenario: Scenario) -> None:
    run_id = scenario.start("noted", scenario.file)
    again = scenario.rival.run("noted", scenario.file, run_id=run_id)
    scenario.end(run_id)
    assert (again.run_id, notes(scenario.file)) == (run_id, ["ran"])


def test_a_workflow_may_call_itself(scenario: Scenario) -> None:
    assert scenario.run("factorial", 6) == 720


def test_a_step_is_mapped_over_many_items_in_order(scenario: Scenario) -> None:
    assert scenario.run("mapped", 60) == [n * n for n in range(60)]


# -- operators --------------------------------------------------------------------------------------------


def test_a_sleeping_run_can_be_cancelled_and_its_child_with_it(scenario: Scenario) -> None:
    run_id = scenario.start("parent-of-a-sleeper")
    sleeping(scenario, run_id)
    [child] = scenario.rival.tree(run_id).children
    assert scenario.rival.cancel(run_id) is True
    assert scenario.end(run_id).status == "cancelled"
    wait_until(lambda: scenario.rival.state(child.run_id).status == "cancelled", what="the child is cancelled")


def test_a_run_that_has_ended_cannot_be_cancelled(scenario: Scenario) -> None:
    run_id = scenario.start("returns-nothing")
    scenario.end(run_id)
    assert (scenario.rival.cancel(run_id), scenario.rival.state(run_id).status) == (False, "completed")


def test_a_failed_run_is_retried_from_the_step_that_failed(scenario: Scenario) -> None:
    run_id = scenario.start("three-steps", scenario.file)
    assert scenario.end(run_id).status == "failed"
    scenario.rival.retry(run_id)
    assert (scenario.end(run_id).status, notes(scenario.file)) == ("completed", ["one", "failed", "worked", "three"])


def test_a_run_can_be_done_again_from_a_step(scenario: Scenario) -> None:
    run_id = scenario.start("three-steps", scenario.file)
    scenario.end(run_id)
    scenario.rival.rewind(run_id, "one")
    assert (scenario.end(run_id).status, notes(scenario.file)) == (
        "completed",
        ["one", "failed", "one", "worked", "three"],
    )


def test_a_retried_flow_does_not_repeat_what_has_completed(scenario: Scenario) -> None:
    run_id = scenario.start("retried-flow", scenario.file)
    assert scenario.end(run_id).status == "failed"
    scenario.rival.retry(run_id)
    assert (scenario.end(run_id).result, notes(scenario.file)) == (["first", "worked"], ["first", "failed", "worked"])


def test_nothing_new_begins_in_a_paused_run_until_it_is_resumed(scenario: Scenario) -> None:
    run_id = scenario.start("paused-between", scenario.file)
    wait_until(lambda: len(notes(scenario.file)) >= 3, what="three parts are done")
    assert scenario.rival.pause(run_id) is True
    wait_until(lambda: all(step.status != "running" for step in scenario.rival.state(run_id).steps), what="it stands")
    before = notes(scenario.file)
    assert scenario.run("returns-nothing") is None, "others go on"
    assert notes(scenario.file) == before
    scenario.rival.resume(run_id)
    assert (scenario.end(run_id).status, len(notes(scenario.file))) == ("completed", 50)
