"""What the testing kit promises: the real engine, to its end, in milliseconds, whatever a step is made to do."""

from __future__ import annotations

import datetime as dt
import threading
import time
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import Mock

import pytest
from pydantic import BaseModel, Field, field_validator

from rival_client import (
    ConfigurationError,
    InvalidArgument,
    InvalidInput,
    Rival,
    RunNotFound,
    UnknownWorkflow,
    WaitTimeout,
)
from rival_workers import Registry, StepError, create_workflow, flow, step
from rival_workers.definition.define import define_workflow
from rival_workers.definition.waits import Sleep
from rival_workers.engine.nodes import StepNode
from rival_workers.engine.plan import Plan
from rival_workers.testing import Lab, LabError, NeverEnds, TimelineEntry
from tests.support.output import is_printed, whole

HOUR = 3600.0
BUSY = StepError("busy", behavior="retry")


@pytest.fixture(params=[True, False], ids=["continuation", "message-per-attempt"])
def lab(request: pytest.FixtureRequest) -> Any:
    with Lab(continuation=request.param) as opened:
        yield opened


def reserve(input: dict[str, Any]) -> dict[str, Any]:
    return {"reserved": input["id"]}


def charge() -> dict[str, Any]:
    return {"charged": True}


def ship(steps: Any) -> dict[str, Any]:
    return {"shipped": steps.reserve.result["reserved"]}


def order(lab: Lab, **options: Any) -> None:
    """The workflow of most tests; `options` are those of `charge`."""
    patient = {"max_attempts": 5, "backoff": "exponential", "base_delay": HOUR, "max_delay": 100 * HOUR}
    lab.register([reserve, step(charge, **{**patient, **options}), ship], name="order")


def nothing_more_happens(lab: Lab) -> None:
    """As if everything waited for an event."""
    lab._world.broker.lose()
    with lab.rival.database.transaction() as connection:
        connection.exec_driver_sql("UPDATE rival_steps SET ring_at = NULL")
        connection.exec_driver_sql("UPDATE rival_runs SET ring_at = NULL")


def shown(entries: list[TimelineEntry]) -> list[tuple[float, str | None, str]]:
    return [(entry.at, entry.path, entry.what) for entry in entries]


# -- running ----------------------------------------------------------------------------------------------


def test_a_run_is_brought_to_its_end(lab: Lab) -> None:
    order(lab)
    run = lab.run("order", {"id": 7}, run_id="order-7")
    assert (run.run_id, run.status, run.result, run.error) == ("order-7", "completed", {"shipped": 7}, None)
    assert list(run.results) == ["reserve", "charge", "ship"]
    assert run.seconds == 0
    run.assert_completed({"shipped": 7})


def test_backoffs_of_hours_pass_at_once(lab: Lab) -> None:
    order(lab)
    lab.fail("charge", times=2, error=BUSY)
    run = lab.run("order", {"id": 7})
    run.assert_completed()
    run.assert_attempts("charge", 3)
    assert run.step("charge").attempts == 3
    assert [(tried.at, tried.what, tried.attempt) for tried in run.attempts_of("charge")] == [
        (0, "failed", 1),
        (HOUR, "failed", 2),
        (3 * HOUR, "completed", 3),
    ]


def test_ten_steps_with_hours_of_backoff_take_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of this thread's own time, in which nothing sleeps: how busy the machine is does not matter."""
    monkeypatch.setattr(time, "sleep", Mock(side_effect=AssertionError("nothing sleeps")))
    with Lab() as lab:
        # What is imported, made and compiled once in a process does not count.
        lab.register([step(charge, max_attempts=2)], name="first")
        lab.fail("charge", times=1)
        lab.run("first").assert_completed()
    began = time.thread_time()
    with Lab() as lab:
        steps = [
            step(charge, name=f"s{n}", max_attempts=3, backoff="exponential", base_delay=HOUR, max_delay=9 * HOUR)
            for n in range(10)
        ]
        lab.register(steps, name="patient")
        for n in range(10):
            lab.fail(f"s{n}", times=2)
        run = lab.run("patient")
        run.assert_completed()
        assert run.seconds == 30 * HOUR
    assert time.thread_time() - began < 5


def test_a_lab_opens_in_a_few_milliseconds() -> None:
    Lab().close()
    began = time.process_time()
    for _ in range(10):
        Lab().close()
    assert (time.process_time() - began) / 10 < 0.1


def test_nothing_in_a_lab_runs_beside_the_test(lab: Lab) -> None:
    before, seen = set(threading.enumerate()), list[threading.Thread]()
    lab.register([step(lambda: seen.append(threading.current_thread()), name="look", timeout=60)], name="w")
    lab.run("w")
    assert seen == [threading.current_thread()]
    assert set(threading.enumerate()) == before


def test_the_timeline_has_everything_in_its_order(lab: Lab) -> None:
    order(lab)
    lab.fail("charge", error=BUSY)
    lab.crash("ship")
    run = lab.run("order", {"id": 7})
    assert shown(run.timeline) == [
        (0, None, "started"),
        (0, "reserve", "completed"),
        (0, "charge", "failed"),
        (HOUR, "charge", "completed"),
        (HOUR + 15, "ship", "taken_over"),
        (HOUR + 15, "ship", "completed"),
        (HOUR + 15, None, "completed"),
    ]
    assert str(run).splitlines()[:5] == [
        f"Run {run.run_id!r} of workflow 'order' is completed.",
        "Events (seconds since its start):",
        "       0.000  (run) started",
        "       0.000  reserve completed (attempt 1)",
        "       0.000  charge failed (attempt 1): StepError: busy",
    ]


def test_a_delay_step_is_skipped_over(lab: Lab) -> None:
    lab.register([charge, Sleep("cool_off", 30 * 86_400), step(charge, name="again")], name="w")
    run = lab.run("w")
    assert shown(run.timeline)[1:3] == [(0, "charge", "completed"), (30 * 86_400, "cool_off", "completed")]
    assert lab.now - run.state.created_at >= dt.timedelta(days=30)


def test_a_delay_that_is_near_is_precise_too(lab: Lab) -> None:
    lab.register([Sleep("blink", 2), charge], name="w")
    assert lab.run("w").seconds == 2


def test_the_clock_begins_at_the_given_time() -> None:
    start = dt.datetime(2030, 1, 1, tzinfo=dt.UTC)
    with Lab(start=start) as lab:
        order(lab)
        assert lab.run("order", {"id": 1}).state.created_at == start


def test_async_steps_and_what_they_log(lab: Lab) -> None:
    async def fetch(log: Any) -> str:
        log.info("fetching", page=3)
        return "page"

    lab.register([fetch], name="w")
    run = lab.run("w")
    assert (run.result, [(entry.message, entry.fields) for entry in run.logs]) == ("page", [("fetching", {"page": 3})])


def test_a_lost_message_is_published_again_by_the_keeper(lab: Lab) -> None:
    order(lab)
    run = lab.start("order", {"id": 7})
    lab._world.broker.lose()
    assert run.finish().seconds == 10


def test_a_setting_that_makes_no_sense_opens_no_lab() -> None:
    with pytest.raises(ConfigurationError):
        Lab(lease=0.1)


# -- registering ------------------------------------------------------------------------------------------

FILE = """
name = "from-file"
def greet(input):
    return f"Hello {input}"
steps = [greet]
"""


def test_files_and_directories_are_registered(lab: Lab, tmp_path: Path) -> None:
    (tmp_path / "one.py").write_text(FILE)
    lab.register(tmp_path / "one.py")
    assert lab.run("from-file", "Ada").result == "Hello Ada"
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "two.py").write_text(FILE.replace("from-file", "from-directory"))
    lab.register(str(tmp_path / "more"))
    assert lab.run("from-directory", "Ada").result == "Hello Ada"


def test_a_module_is_registered_as_it_is(lab: Lab, tmp_path: Path) -> None:
    module = ModuleType("patched")
    module.__file__ = str(tmp_path / "patched.py")
    module.steps = [step(lambda: "patched", name="one")]  # type: ignore[attr-defined]
    lab.register(module)
    assert lab.run("patched").result == "patched"


def test_builders_and_definitions_are_registered(lab: Lab) -> None:
    lab.register(create_workflow("built").step(charge))
    lab.register(define_workflow("defined", [charge]))
    assert lab.run("built").result == lab.run("defined").result == {"charged": True}


def test_what_was_registered_as_usual_is_there(lab: Lab) -> None:
    create_workflow("registered-as-usual").step(charge).register()
    assert lab.run("registered-as-usual").result == {"charged": True}


def test_a_lab_does_not_know_the_replacements_of_another() -> None:
    with Lab() as one, Lab() as other:
        one.register([charge], name="w")
        one.run("w")
        with pytest.raises(UnknownWorkflow):
            other.run("w")
        assert other.rival.runs() == []


@pytest.mark.parametrize(
    ("what", "options", "cure"),
    [
        ([charge], {}, "A list of steps needs a name: lab.register([first, second], name='order')."),
        (42, {}, "42 is not a workflow: give a file, a directory, a module, a builder or a list of steps."),
        (
            create_workflow("w").step(charge),
            {"name": "other"},
            "A name and options are for a list of steps; a workflow, builder or file has its own.",
        ),
    ],
)
def test_what_cannot_be_registered_is_refused_with_the_cure(lab: Lab, what: Any, options: Any, cure: str) -> None:
    with pytest.raises(LabError, match=whole(cure)):
        lab.register(what, **options)


def test_inputs_are_checked_as_usual(lab: Lab) -> None:
    lab.register([charge], name="w", input=int)
    with pytest.raises(InvalidInput):
        lab.run("w", "seven")


# -- replacing and failing --------------------------------------------------------------------------------


def test_a_step_is_replaced_by_name(lab: Lab) -> None:
    order(lab)
    lab.replace("charge", lambda input: {"paid": input["id"]})
    run = lab.run("order", {"id": 7})
    assert run.results["charge"] == {"paid": 7}


def test_the_last_replacement_holds_and_a_mock_will_do(lab: Lab) -> None:
    order(lab)
    first, last = Mock(return_value=1), Mock(return_value=2)
    lab.replace("charge", first)
    lab.replace("charge", last)
    assert lab.run("order", {"id": 7}).results["charge"] == 2
    assert (first.call_count, last.call_count) == (0, 1)


def test_an_async_function_can_replace_a_step(lab: Lab) -> None:
    async def instead() -> str:
        return "async"

    order(lab)
    lab.replace("charge", instead)
    assert lab.run("order", {"id": 7}).results["charge"] == "async"


def test_a_step_is_replaced_in_one_workflow_only(lab: Lab) -> None:
    lab.register([charge], name="one")
    lab.register([charge], name="other")
    lab.replace("charge", lambda: "replaced", workflow="one")
    assert (lab.run("one").result, lab.run("other").result) == ("replaced", {"charged": True})


def test_failures_are_counted_for_each_run_by_itself(lab: Lab) -> None:
    order(lab)
    lab.fail("charge", times=1, error=BUSY)
    for number in (1, 2):
        lab.run("order", {"id": number}).assert_attempts("charge", 2)


def test_a_step_that_always_fails_uses_up_its_attempts(lab: Lab) -> None:
    order(lab, max_attempts=4)
    lab.fail("charge", times=None)
    run = lab.run("order", {"id": 7})
    run.assert_failed(step="charge", error="StepError")
    run.assert_attempts("charge", 4)
    run.assert_never_ran("ship")
    assert (run.failed_step, run.seconds) == ("charge", 7 * HOUR)


def test_any_exception_can_be_injected(lab: Lab) -> None:
    order(lab)
    lab.fail("charge", error=ValueError("no such card"))
    run = lab.run("order", {"id": 7})
    assert run.error is not None
    assert (run.failed_step, run.error["type"], run.error["message"]) == ("charge", "ValueError", "no such card")


def test_what_was_said_of_a_step_happens_in_that_order(lab: Lab) -> None:
    order(lab)
    lab.fail("charge", error=BUSY)
    lab.crash("charge")
    lab.fail("charge", error=BUSY)
    run = lab.run("order", {"id": 7})
    assert [tried.what for tried in run.attempts_of("charge")] == ["failed", "taken_over", "failed", "completed"]


@pytest.mark.parametrize("say", ["replace", "fail", "crash", "delay", "time_out"])
def test_a_step_that_does_not_exist_is_a_mistake_in_the_test(lab: Lab, say: str) -> None:
    order(lab)
    more = {"replace": [charge], "delay": [1.0]}.get(say, [])
    getattr(lab, say)("chrage", *more)
    with pytest.raises(
        LabError, match=whole("Unknown step 'chrage' in this lab. Its steps are: order: reserve, charge, ship.")
    ):
        lab.run("order", {"id": 7})


def test_a_replacement_that_cannot_be_called_is_refused(lab: Lab) -> None:
    """A step of a flow can have any parameters: the workflow that is named here has no flow."""
    lab.register([step(lambda: None, name="charge")], name="without-flows")
    with pytest.raises(
        LabError,
        match=whole(
            "The replacement of step 'charge': cannot inject parameters 'card', 'sum': a step may ask for any "
            "of ctx, input, steps, last_step, state, log, run, error, failed_step, workflow_state, result, "
            "item, index, or take the whole context as its only argument. Rename it, or give it a default."
        ),
    ):
        lab.replace("charge", lambda card, sum: None, workflow="without-flows")


# -- crashes ----------------------------------------------------------------------------------------------


def test_a_crashed_worker_s_attempt_is_taken_over_when_its_lease_has_run_out(lab: Lab) -> None:
    calls = Mock(return_value=1)
    order(lab)
    lab.replace("charge", calls)
    lab.crash("charge")
    run = lab.run("order", {"id": 7})
    run.assert_completed()
    run.assert_attempts("charge", 1)
    charged = run.step("charge")
    assert (charged.lost, calls.call_count) == (1, 1)
    lost, completed = run.attempts_of("charge")
    assert (lost.what, lost.at, completed.what, completed.at) == ("taken_over", 15, "completed", 15)
    [taken] = [entry for entry in lab.rival.history(run.run_id) if entry.what == "taken_over"]
    assert (taken.path, taken.by) == ("charge", "keeper")


def test_a_worker_can_die_after_the_work_and_before_its_commit(lab: Lab) -> None:
    calls = Mock(return_value=1)
    order(lab)
    lab.replace("charge", calls)
    lab.crash("charge", after=True)
    lab.run("order", {"id": 7}).assert_completed()
    assert calls.call_count == 2


def test_an_async_step_has_done_its_work_before_the_worker_dies(lab: Lab) -> None:
    done = []

    async def work() -> None:
        done.append(1)

    lab.register([work], name="w")
    lab.crash("work", after=True)
    lab.run("w").assert_completed()
    assert done == [1, 1]


def test_a_step_that_kills_its_workers_fails(lab: Lab) -> None:
    order(lab)
    lab.crash("charge", times=None)
    run = lab.run("order", {"id": 7})
    run.assert_failed(step="charge", error="ExecutorLost")
    assert run.step("charge").lost == 3


def test_the_lease_is_the_one_that_was_set() -> None:
    with Lab(lease=60) as lab:
        order(lab)
        lab.crash("charge")
        assert lab.run("order", {"id": 7}).seconds == 60


# -- time in the middle of an attempt ---------------------------------------------------------------------


def test_a_step_takes_its_time(lab: Lab) -> None:
    order(lab)
    lab.delay("charge", 90)
    run = lab.run("order", {"id": 7})
    [tried] = run.attempts_of("charge")
    assert (tried.began, tried.at, run.seconds) == (0, 90, 90)


def test_a_step_that_overstays_its_timeout_is_timed_out_and_its_result_refused(lab: Lab) -> None:
    order(lab, timeout=60)
    lab.delay("charge", dt.timedelta(hours=2))
    run = lab.run("order", {"id": 7})
    run.assert_failed(step="charge", error="StepTimeout")
    assert shown(run.timeline)[2:] == [
        (60, "charge", "timed_out"),
        (60, "charge", "late_result_refused"),
        (60, None, "failed"),
    ]


def test_a_timeout_is_retried_when_the_step_says_so(lab: Lab) -> None:
    order(lab, timeout=60, on_timeout="retry", base_delay=5)
    lab.time_out("charge")
    run = lab.run("order", {"id": 7})
    run.assert_completed()
    assert [(tried.at, tried.what) for tried in run.attempts_of("charge")] == [(60, "timed_out"), (65, "completed")]


def test_a_step_within_its_timeout_is_not_timed_out(lab: Lab) -> None:
    order(lab, timeout=60)
    lab.delay("charge", 59)
    lab.run("order", {"id": 7}).assert_completed()


def test_a_slow_attempt_may_fail_as_well(lab: Lab) -> None:
    order(lab)
    lab.delay("charge", 10)
    lab.fail("charge", error=BUSY)
    run = lab.run("order", {"id": 7})
    assert [(tried.began, tried.at, tried.what) for tried in run.attempts_of("charge")] == [
        (0, 10, "failed"),
        (10 + HOUR, 20 + HOUR, "completed"),
    ]


def test_a_step_may_let_time_pass_itself(lab: Lab) -> None:
    order(lab, timeout=60)
    lab.replace("charge", lambda: lab.advance(61))
    lab.run("order", {"id": 7}).assert_failed(step="charge", error="StepTimeout")


def test_a_step_without_a_timeout_cannot_time_out(lab: Lab) -> None:
    order(lab)
    lab.time_out("charge")
    with pytest.raises(
        LabError, match=whole("The step has no timeout, so it cannot time out. Give it one: step(…, timeout=60).")
    ):
        lab.run("order", {"id": 7})


def test_a_worker_that_is_busy_for_hours_keeps_its_lease(lab: Lab) -> None:
    order(lab)
    lab.delay("charge", 5 * HOUR)
    run = lab.run("order", {"id": 7})
    assert (run.step("charge").lost, run.seconds) == (0, 5 * HOUR)


# -- looking in the middle --------------------------------------------------------------------------------


def test_nothing_happens_to_a_started_run_before_the_lab_goes_on(lab: Lab) -> None:
    order(lab)
    run = lab.start("order", {"id": 7})
    assert (run.status, run.timeline) == ("pending", [])
    assert run.finish().status == "completed"


def test_time_passes_for_as_long_as_asked(lab: Lab) -> None:
    order(lab)
    lab.fail("charge", times=2, error=BUSY)
    run = lab.start("order", {"id": 7})
    lab.advance(HOUR - 1)
    assert run.step("charge").attempts == 1
    assert run.seconds == HOUR - 1
    lab.advance(1)
    assert run.step("charge").attempts == 2
    lab.advance(dt.timedelta(hours=2))
    run.assert_completed()


def test_a_run_goes_on_until_a_step_is_next(lab: Lab) -> None:
    order(lab)
    lab.fail("charge", error=BUSY)
    run = lab.start("order", {"id": 7})
    lab.run_until("ship")
    assert (run.status, list(run.results), run.seconds) == ("running", ["reserve", "charge"], HOUR)
    assert run.step("ship").attempts == 0
    lab.replace("ship", lambda: "by hand")
    assert run.finish().result == "by hand"


@pytest.mark.parametrize("seed", range(5))
def test_a_step_is_not_missed_although_messages_come_in_any_order(seed: int) -> None:
    with Lab(shuffle=seed, duplicate=True) as lab:
        order(lab)
        runs = [lab.start("order", {"id": number}) for number in range(4)]
        lab.run_until("ship")
        assert {status for run in runs for status in [run.status]} <= {"pending", "running"}
        assert not [run for run in runs if run.attempts_of("ship")]


def test_a_message_that_has_no_effect_any_more_is_not_stopped_at(lab: Lab) -> None:
    order(lab)
    first = lab.start("order", {"id": 1})
    lab.run_until("charge")
    first.cancel()
    second = lab.start("order", {"id": 2})
    lab.run_until("charge")
    assert list(second.results) == ["reserve"]


def test_a_step_that_no_run_comes_to_is_not_waited_for(lab: Lab) -> None:
    order(lab)
    lab.fail("charge", error=StepError("no"))
    lab.start("order", {"id": 7})
    with pytest.raises(LabError, match=whole("No run has reached step 'ship', and nothing else is due.")):
        lab.run_until("ship")


def test_a_run_is_cancelled_in_the_middle(lab: Lab) -> None:
    order(lab)
    run = lab.start("order", {"id": 7})
    lab.run_until("charge")
    assert run.cancel()
    run.finish().assert_cancelled()
    assert shown(run.timeline)[-2:] == [(0, "charge", "cancelled"), (0, None, "cancelled")]


def test_a_cancel_at_the_very_moment_of_a_failure_is_reported_too(lab: Lab) -> None:
    order(lab)
    lab.fail("charge", error=BUSY)
    run = lab.start("order", {"id": 7})
    while not run.state.attempts:
        lab._deliver_or_skip(lab._world.broker.take(), 0)
    run.cancel()
    assert shown(run.timeline)[2:] == [(0, "charge", "failed"), (0, "charge", "cancelled"), (0, None, "cancelled")]


def test_old_runs_go_when_their_time_has_come() -> None:
    with Lab(retention=7 * 86_400) as lab:
        order(lab)
        run = lab.run("order", {"id": 7})
        lab.advance(dt.timedelta(days=6))
        assert [kept.run_id for kept in lab.rival.runs()] == [run.run_id]
        lab.advance(dt.timedelta(days=2))
        assert lab.rival.runs() == []


# -- the client -------------------------------------------------------------------------------------------


def test_code_that_starts_and_waits_is_tested_with_the_labs_client(lab: Lab) -> None:
    order(lab)
    lab.fail("charge", error=BUSY)
    rival: Rival = lab.rival
    started = rival.run("order", {"id": 7})
    assert rival.wait("order", started.run_id, timeout=2 * HOUR).unwrap() == {"shipped": 7}


def test_a_wait_times_out_by_the_labs_clock(lab: Lab) -> None:
    order(lab)
    lab.fail("charge", error=BUSY)
    handle = lab.rival.get("order").get_or_create("order-7")
    handle.run({"id": 7})
    before = lab.now
    with pytest.raises(WaitTimeout):
        handle.wait(timeout=600)
    assert round((lab.now - before).total_seconds(), 3) == 600
    assert handle.wait(timeout=None).status == "completed"


def test_a_wait_for_a_run_that_waits_for_ever_times_out_too(lab: Lab) -> None:
    order(lab)
    run = lab.start("order", {"id": 7})
    nothing_more_happens(lab)
    with pytest.raises(WaitTimeout):
        lab.rival.wait("order", run.run_id, timeout=60)
    with pytest.raises(NeverEnds):
        lab.rival.wait("order", run.run_id, timeout=None)


async def test_code_that_awaits_is_tested_with_the_labs_async_client(lab: Lab) -> None:
    order(lab)
    lab.fail("charge", error=BUSY)
    started = await lab.async_rival.run("order", {"id": 7})
    with pytest.raises(WaitTimeout):
        await lab.async_rival.wait("order", started.run_id, timeout=60)
    result = await lab.async_rival.get("order").get_or_create(started.run_id).wait(timeout=2 * HOUR)
    assert result.unwrap() == {"shipped": 7}


def test_a_run_that_other_code_has_started_is_found_by_its_id(lab: Lab) -> None:
    order(lab)
    started = lab.rival.run("order", {"id": 7})
    lab.get(started.run_id).finish().assert_completed()
    with pytest.raises(RunNotFound):
        lab.get("another")


# -- runs without an end ----------------------------------------------------------------------------------


@pytest.mark.timeout(30)
def test_a_paused_run_that_has_become_due_never_ends_and_holds_up_no_other(rival_lab: Lab) -> None:
    rival_lab.register(create_workflow("naps").delay("nap", seconds=5))
    rival_lab.register(create_workflow("waits").wait_event("event", "never"))
    paused, waits = rival_lab.start("naps"), rival_lab.start("waits")
    rival_lab.advance(1)
    rival_lab.rival.pause(paused.run_id)
    rival_lab.advance(3600)
    for run in (paused, waits):
        with pytest.raises(
            NeverEnds,
            match=whole(
                "Nothing is due, and no message is queued.\nRun '…' of workflow '…' is suspended.\nEvents (seconds "
                "since its start):\n       0.000  (run) started\nOpen steps, 3601.000 s after its start:\n  … (…) "
                "waiting, 0 attempt(s)…"
            ),
        ):
            run.finish()
    rival_lab.rival.resume(paused.run_id)
    paused.finish()
    assert paused.status == "completed"


def test_a_run_that_waits_for_nothing_is_shown_and_not_waited_for(lab: Lab) -> None:
    lab.register([charge, Sleep("nap", 60)], name="w")
    run = lab.start("w")
    lab.run_until("nap")
    nothing_more_happens(lab)
    with pytest.raises(NeverEnds) as refused:
        run.finish()
    assert str(refused.value).splitlines() == [
        "Nothing is due, and no message is queued.",
        f"Run {run.run_id!r} of workflow 'w' is suspended.",
        "Events (seconds since its start):",
        "       0.000  (run) started",
        "       0.000  charge completed (attempt 1)",
        "Open steps, 60.000 s after its start:",
        "  nap (sleep) waiting, 0 attempt(s), due at 60.000",
    ]


def test_a_run_of_a_version_that_the_lab_does_not_have_is_shown(lab: Lab) -> None:
    lab._world.store.register_workflow("w", Plan(nodes=(StepNode(name="a"),)), None, None)
    with pytest.raises(
        NeverEnds,
        match=whole(
            "This lab does not have its workflow at its version.\nRun '…' of workflow 'w' is pending.\nIt is "
            "parked: worker does not have workflow 'w'."
        ),
    ):
        lab.run("w")


def test_a_run_that_is_tried_for_ever_is_given_up(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rival_workers.testing.lab.MAX_MESSAGES", 50)
    order(lab, max_attempts=10**6, backoff="none")
    lab.fail("charge", times=None)
    with pytest.raises(NeverEnds) as caught:
        lab.run("order", {"id": 7})
    first, second, *_ = str(caught.value).splitlines()
    assert (first, is_printed(["Run '…' of workflow 'order' is running."], [second])) == (
        "It has not ended after 50 messages.",
        True,
    )


# -- claims -----------------------------------------------------------------------------------------------


def test_a_claim_that_does_not_hold_shows_the_run(lab: Lab) -> None:
    order(lab)
    run = lab.run("order", {"id": 7})
    claims = [
        lambda: run.assert_failed(),
        lambda: run.assert_cancelled(),
        lambda: run.assert_completed("other"),
        lambda: run.assert_attempts("charge", 2),
        lambda: run.assert_never_ran("ship"),
    ]
    for claim in claims:
        with pytest.raises(
            AssertionError,
            match=whole(
                "The run should …have ….\nRun '…' of workflow 'order' is completed.\nEvents (seconds since its "
                "start):\n       0.000  (run) started\n       0.000  reserve completed (attempt 1)\n       0.000  "
                "charge completed (attempt 1)\n       0.000  ship completed (attempt 1)\n       0.000  (run) "
                "completed"
            ),
        ):
            claim()


def test_a_failure_elsewhere_is_not_the_one_that_was_claimed(lab: Lab) -> None:
    order(lab)
    lab.fail("reserve", error=ValueError("x"))
    run = lab.run("order", {"id": 7})
    run.assert_failed(step="reserve", error="ValueError")
    for wrong in ({"step": "charge"}, {"error": "KeyError"}):
        with pytest.raises(
            AssertionError,
            match=whole(
                "The run should have failed …, not ….\nRun '…' of workflow 'order' is failed.\nEvents (seconds "
                "since its start):\n       0.000  (run) started\n       0.000  reserve failed (attempt 1): "
                "ValueError: x\n       0.000  (run) failed: ValueError: x"
            ),
        ):
            run.assert_failed(**wrong)


def test_a_step_that_was_not_reached_is_asked_for_in_vain(lab: Lab) -> None:
    order(lab)
    run = lab.start("order", {"id": 7})
    with pytest.raises(LabError, match=whole("'ship' in run '…': unknown step; its steps are: none yet.")):
        run.step("ship")


class Even(BaseModel):
    the_number: int = Field(alias="theNumber", default=0)

    @field_validator("the_number")
    @classmethod
    def _is_even(cls, number: int) -> int:
        if number % 2:
            raise ValueError("give an even one")
        return number


def test_a_problem_that_only_the_model_finds_says_that_the_run_was_started(lab: Lab) -> None:
    lab.register([read_number], name="even", input=Even)
    run = lab.run("even", {"theNumber": 3}, run_id="odd")
    assert run.status == "failed"
    assert run.error is not None
    assert run.error["message"].startswith(
        "The input of run 'odd' does not fit the model of workflow 'even' on its worker"
    )
    assert run.error["message"] == (
        "The input of run 'odd' does not fit the model of workflow 'even' on its worker:\n  - theNumber: Value "
        "error, give an even one"
    )


def read_number(input: Even) -> int:
    return input.the_number


def test_an_instance_of_the_input_model_is_read_as_it_was_given_also_by_a_child(lab: Lab) -> None:
    lab.register([read_number], name="even", input=Even)

    def parent(ctx: Any) -> Any:
        return ctx.call("even", Even(theNumber=8))

    lab.register(flow("parent", registry=Registry())(parent))
    assert lab.run("even", Even(theNumber=4)).result == 4
    assert lab.run("parent").result == 8


@pytest.mark.parametrize("seconds", ["5", float("nan"), -1, True, None], ids=repr)
def test_only_a_duration_can_pass(lab: Lab, seconds: Any) -> None:
    for pass_time in (lab.advance, lambda given: lab.delay("charge", given)):
        with pytest.raises(
            InvalidArgument,
            match=whole(
                "Invalid argument seconds: … is not a duration: give 0 to 3,153,600,000 seconds, or a timedelta."
            ),
        ):
            pass_time(seconds)


def test_invalid_arguments_of_a_lab_are_named() -> None:
    known = "database_url, broker_url, queue, …, lease, …"
    expected = f"Invalid argument leese: unknown setting (did you mean 'lease'?); known are {known}"
    with pytest.raises(InvalidArgument, match=whole(expected)):
        Lab(leese=5)
    with pytest.raises(
        LabError, match=whole("start='today' is not a datetime: give datetime(2024, 5, 1, tzinfo=UTC).")
    ):
        Lab(start="today")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"error": "no"}, "error='no' is not an exception: give one, such as ValueError('no')."),
        (
            {"error": ValueError},
            "error=<class 'ValueError'> is not an exception: give one, such as ValueError('no').",
        ),
        ({"times": "2"}, "times='2' never applies. Give 1 or more, or None for always."),
        ({"times": 0}, "times=0 never applies. Give 1 or more, or None for always."),
    ],
)
def test_invalid_arguments_of_a_failure_are_named(lab: Lab, given: dict[str, Any], problem: str) -> None:
    with pytest.raises(LabError, match=whole(f"Step 'charge': {problem}")):
        lab.fail("charge", **given)


# -- rules of the fleet -----------------------------------------------------------------------------------


def test_a_rule_of_the_fleet_is_in_force_at_once_until_it_expires_or_is_removed(lab: Lab) -> None:
    order(lab)
    lab.fail("charge", times=None, error=BUSY)
    lab.rival.set_policy("charge", {"max_attempts": 2}, until=10 * HOUR)
    lab.run("order", {"id": 1}).assert_attempts("charge", 2)
    lab.advance(10 * HOUR)
    lab.run("order", {"id": 2}).assert_attempts("charge", 5)
    rule = lab.rival.set_policy("charge", {"max_attempts": 3})
    lab.run("order", {"id": 3}).assert_attempts("charge", 3)
    lab.rival.remove_policy(rule.id)
    lab.run("order", {"id": 4}).assert_attempts("charge", 5)


def test_a_lab_serves_every_queue(lab: Lab) -> None:
    """Of a step, of a flow and of a whole workflow."""

    @flow("print", queue="printers")
    def print_it(ctx: Any) -> Any:
        return ctx.step(charge)

    lab.register([step(reserve, queue="gpu"), step(ship, queue="cpu", queue_timeout=60)], name="order")
    lab.register(print_it)
    run = lab.run("order", {"id": 7})
    run.assert_completed({"shipped": 7})
    assert run.seconds == 0
    lab.run("print").assert_completed({"charged": True})


def test_a_lab_can_serve_some_queues_only() -> None:
    with Lab(queues="default,cpu") as lab:
        again = step(charge, name="again", queue="gpu", queue_timeout=60)
        lab.register([step(charge, queue="cpu"), again], name="order")
        lab.run("order").assert_failed(step="again", error="QueueTimeout")
