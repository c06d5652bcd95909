"""Every promise of the first seed's test lists, on a real worker: `run` + `wait`, scheduled retries and timeouts."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from rival_client import Rival, RunResult, RunState, Started, WaitTimeout
from rival_client.settings import Settings
from tests.support.output import whole
from tests.support.workers import Workers, wait_until

WORKFLOWS = """
import time
from pathlib import Path
from rival_workers import StepError, create_workflow, step

def note(input, *words):
    with Path(input["diary"]).open("a") as diary:
        diary.write(" ".join(map(str, words)) + "\\n")

def flaky(input, run, state):
    note(input, "flaky", run.attempt)
    if run.attempt <= input["failures"]:
        raise StepError("not yet", behavior="retry", max_attempts=input.get("asks"))
    return run.attempt

def after(input, last_step):
    note(input, "after", last_step.result)
    return {"after": last_step.result}

def slow(input, run):
    note(input, "slow", run.attempt)
    if run.attempt <= input.get("slow", 1):
        time.sleep(1.0)
        note(input, "woke", run.attempt)
    return {"attempt": run.attempt}

def boom(input):
    note(input, "boom")
    raise ValueError("no axe")

def soft(input):
    note(input, "soft")
    raise StepError("never mind", behavior="continue")

def report(input, error, failed_step, run):
    note(input, "step handler", failed_step.step_name, error["type"], run.attempt)

def all_said(input, error, failed_step, workflow_state):
    note(input, "workflow handler", failed_step.step_name, error["type"])

def broken_handler(input, error):
    note(input, "broken handler")
    raise RuntimeError("the handler broke too")

def one(input):
    note(input, "begin one")
    note(input, "end one")
    return 1

def two(input, last_step):
    note(input, "begin two")
    note(input, "end two")
    return last_step.result + 1

async def three(input, steps, state):
    note(input, "begin three")
    state.description = "counted"
    note(input, "end three")
    return {"sum": steps.one.result + steps.two.result}

def hold(input):
    note(input, "holding")
    while not Path(input["diary"] + ".go").exists():
        time.sleep(0.01)
    return "held"

wait = {"max_attempts": 3, "base_delay": 0.4, "max_delay": 0.4}
create_workflow("flaky").step(flaky, **wait).step(after).register()
create_workflow("patient").step(flaky, max_attempts=3, base_delay=1.5).step(after).register()
create_workflow("slow-stop").step(slow, timeout=0.3).step(after).register()
create_workflow("slow-retry").step(slow, timeout=0.3, on_timeout="retry", max_attempts=2, base_delay=0.1).step(
    after).register()
create_workflow("handled").step(one).step(boom, on_error=report).step(after).on_error(all_said).register()
create_workflow("handled-flaky").step(flaky, on_error=report, **wait).on_error(all_said).register()
create_workflow("handled-slow").step(slow, timeout=0.3, on_error=report).on_error(all_said).register()
create_workflow("badly-handled").step(boom, on_error=broken_handler).on_error(all_said).register()
create_workflow("unhandled").step(one).step(boom).step(after).register()
create_workflow("soft").step(one).step(soft, on_error=report).step(after).on_error(all_said).register()
create_workflow("count").step(one).step(two).step(three).register()
create_workflow("holding").step(hold).step(after).register()
"""


@pytest.fixture(scope="module", params=[1, 0], ids=["continuation", "message-per-attempt"])
def fleet(
    request: pytest.FixtureRequest, own_workers: Workers, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Workers]:
    file = tmp_path_factory.mktemp("seed") / "workflows.py"
    file.write_text(WORKFLOWS)
    [worker] = own_workers.start(file, concurrency=8, continuation_budget=request.param)
    yield own_workers
    worker.terminate()


@pytest.fixture
def producer(own: Settings, fleet: Workers) -> Iterator[Rival]:
    with Rival(settings=own) as rival:
        yield rival


class Diary:
    """What the steps of one run wrote down, in order."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / "diary"
        self.path.touch()

    @property
    def lines(self) -> list[str]:
        return self.path.read_text().splitlines()

    def input(self, **more: Any) -> dict[str, Any]:
        return {"diary": str(self.path), **more}

    def let_go(self) -> None:
        Path(f"{self.path}.go").touch()


@pytest.fixture
def diary(tmp_path: Path) -> Diary:
    return Diary(tmp_path)


def reach(rival: Rival, run_id: str, status: str, step: int = 0) -> RunState:
    """The state at the moment when a step has that status."""
    seen: list[RunState] = []

    def reached() -> bool:
        seen.append(rival.state(run_id))
        return len(seen[-1].steps) > step and seen[-1].steps[step].status == status

    wait_until(reached, 15, f"step {step} {status}")
    return seen[-1]


# -- steps ------------------------------------------------------------------------------------------------


def test_retries_transition_through_waiting_retry(producer: Rival, diary: Diary) -> None:
    run = producer.run("flaky", diary.input(failures=1))
    waiting = reach(producer, run.run_id, "waiting_retry")
    assert waiting.status == "running"
    assert waiting.steps[0].due_at is not None
    assert waiting.steps[0].error is not None
    assert producer.wait("flaky", run.run_id, timeout=15).status == "completed"
    assert diary.lines == ["flaky 1", "flaky 2", "after 2"]


def test_retry_attempts_persist_across_scheduled_invocations(producer: Rival, diary: Diary) -> None:
    run = producer.run("flaky", diary.input(failures=2))
    assert producer.wait("flaky", run.run_id, timeout=15).result == {"after": 3}
    state = producer.state(run.run_id)
    assert state.steps[0].attempts == 3
    assert [(a.attempt, a.outcome) for a in state.attempts] == [(1, "failed"), (2, "failed"), (3, "completed")]
    assert diary.lines == ["flaky 1", "flaky 2", "flaky 3", "after 3"]


@pytest.mark.parametrize(("asks", "attempts"), [(10, 3), (2, 2), (None, 3)])
def test_a_step_errors_max_attempts_cannot_exceed_the_configured_maximum(
    producer: Rival, diary: Diary, asks: int | None, attempts: int
) -> None:
    run = producer.run("flaky", diary.input(failures=99, asks=asks))
    assert producer.wait("flaky", run.run_id, timeout=15).status == "failed"
    assert diary.lines == [f"flaky {n}" for n in range(1, attempts + 1)]


def test_timeout_stop_policy_fails_terminally_and_the_late_result_is_refused(producer: Rival, diary: Diary) -> None:
    run = producer.run("slow-stop", diary.input())
    result = producer.wait("slow-stop", run.run_id, timeout=15)
    assert (result.status, result.failed_step) == ("failed", "slow")
    assert result.error is not None
    assert result.error["type"] == "StepTimeout"
    wait_until(lambda: "woke 1" in diary.lines)

    def recorded() -> list[str]:
        return [
            entry.what
            for entry in producer.history(run.run_id)
            if entry.what not in ("started", "scheduled", "claimed")
        ]

    wait_until(lambda: recorded() == ["timed_out", "failing", "failed", "late_result_refused"])
    assert producer.result(run.run_id) == result
    assert diary.lines == ["slow 1", "woke 1"]


def test_timeout_retry_policy_schedules_a_retry_that_succeeds(producer: Rival, diary: Diary) -> None:
    run = producer.run("slow-retry", diary.input(slow=1))
    result = producer.wait("slow-retry", run.run_id, timeout=15)
    assert result.result == {"after": {"attempt": 2}}
    assert [(a.attempt, a.outcome) for a in producer.state(run.run_id).attempts] == [(1, "timed_out"), (2, "completed")]


def test_timeout_retry_policy_fails_when_no_attempts_remain(producer: Rival, diary: Diary) -> None:
    run = producer.run("slow-retry", diary.input(slow=2))
    result = producer.wait("slow-retry", run.run_id, timeout=15)
    assert (result.status, result.failed_step) == ("failed", "slow")
    assert [a.outcome for a in producer.state(run.run_id).attempts] == ["timed_out", "timed_out"]
    assert [line for line in diary.lines if line.startswith("slow")] == ["slow 1", "slow 2"]


def test_cancel_during_waiting_retry_prevents_further_attempts(
    producer: Rival, diary: Diary, tmp_path_factory: pytest.TempPathFactory
) -> None:
    run = producer.run("flaky", diary.input(failures=99))
    reach(producer, run.run_id, "waiting_retry")
    assert producer.cancel(run.run_id) is True
    # One, unless this process was too slow to cancel it before its next try.
    begun = producer.state(run.run_id).steps[0].attempts
    # A run that starts now and retries twice ends after the cancelled one's retry would have come.
    other = producer.run("flaky", Diary(tmp_path_factory.mktemp("other")).input(failures=2))
    assert producer.wait("flaky", other.run_id, timeout=15).status == "completed"
    assert diary.lines == [f"flaky {n + 1}" for n in range(begun)]
    assert producer.wait("flaky", run.run_id).status == "cancelled"


def test_a_delayed_retry_still_calls_back_when_the_worker_that_scheduled_it_is_gone(
    rival: Rival, workers: Workers, diary: Diary, tmp_path: Path
) -> None:
    """Everything that the retry needs is in the table: another worker takes it from there."""
    file = tmp_path / "workflows.py"
    file.write_text(WORKFLOWS)
    [first] = workers.start(file, ring_grace=1)
    run = rival.run("patient", diary.input(failures=1))
    reach(rival, run.run_id, "waiting_retry")
    first.kill()
    workers.start(file, ring_grace=1)
    assert rival.wait("patient", run.run_id, timeout=20).result == {"after": 2}
    assert diary.lines == ["flaky 1", "flaky 2", "after 2"]


def test_a_delayed_timeout_still_calls_back_and_the_plan_goes_on(producer: Rival, diary: Diary) -> None:
    run = producer.run("slow-retry", diary.input(slow=1))
    producer.wait("slow-retry", run.run_id, timeout=15)
    assert [s.status for s in producer.state(run.run_id).steps] == ["completed", "completed"]


@pytest.mark.parametrize(
    ("workflow", "more", "error"),
    [
        ("handled", {}, "boom ValueError"),
        ("handled-flaky", {"failures": 99}, "flaky StepError"),
        ("handled-slow", {}, "slow StepTimeout"),
    ],
    ids=["by an exception", "after its last retry", "by its timeout"],
)
def test_step_level_on_error_is_invoked_exactly_once_on_terminal_failure(
    producer: Rival, diary: Diary, workflow: str, more: dict[str, Any], error: str
) -> None:
    run = producer.run(workflow, diary.input(**more))
    assert producer.wait(workflow, run.run_id, timeout=15).status == "failed"
    assert [line for line in diary.lines if line.startswith("step handler")] == [f"step handler {error} 1"]


# -- the run ----------------------------------------------------------------------------------------------


def test_run_returns_quickly_and_leaves_the_state_running(producer: Rival, diary: Diary) -> None:
    """Before its step has ended, which holds until it is let go."""
    run = producer.run("holding", diary.input())
    assert reach(producer, run.run_id, "running").status == "running"
    diary.let_go()
    assert producer.wait("holding", run.run_id, timeout=15).result == {"after": "held"}


def test_progress_continues_via_callbacks_to_terminal_completion(producer: Rival, diary: Diary) -> None:
    run = producer.run("count", diary.input())
    assert producer.wait("count", run.run_id, timeout=15).status == "completed"
    state = producer.state(run.run_id)
    assert [(s.path, s.status, s.attempts) for s in state.steps] == [
        ("one", "completed", 1),
        ("two", "completed", 1),
        ("three", "completed", 1),
    ]
    assert state.current_step is None


def test_hard_failure_sets_the_failed_step(producer: Rival, diary: Diary) -> None:
    run = producer.run("unhandled", diary.input())
    result = producer.wait("unhandled", run.run_id, timeout=15)
    assert (result.status, result.failed_step, result.result) == ("failed", "boom", None)
    assert result.error is not None
    assert (result.error["type"], result.error["message"]) == ("ValueError", "no axe")
    assert result.results == {"one": 1}
    assert not [line for line in diary.lines if line.startswith("after")]


def test_continue_on_error_still_advances_the_plan(producer: Rival, diary: Diary) -> None:
    run = producer.run("soft", diary.input())
    result = producer.wait("soft", run.run_id, timeout=15)
    assert (result.status, result.error, result.failed_step) == ("completed", None, None)
    assert result.results == {"one": 1, "after": {"after": None}}
    assert [s.status for s in producer.state(run.run_id).steps if s.kind == "step"] == [
        "completed",
        "failed",
        "completed",
    ]
    assert diary.lines[2:] == ["soft", "step handler soft StepError 1", "after None"]


def test_cancel_in_the_middle_of_a_run_yields_a_cancelled_terminal_state(producer: Rival, diary: Diary) -> None:
    run = producer.run("holding", diary.input())
    reach(producer, run.run_id, "running")
    assert producer.cancel(run.run_id) is True
    result = producer.wait("holding", run.run_id, timeout=15)
    assert (result.status, result.results) == ("cancelled", {})
    diary.let_go()
    wait_until(lambda: "late_result_refused" in [h.what for h in producer.history(run.run_id)])
    assert producer.result(run.run_id) == result
    assert diary.lines == ["holding"]


def test_steps_of_a_run_are_strictly_one_after_another(producer: Rival, diary: Diary) -> None:
    """The sequential analogue of the seed's synchronous loops: loops themselves come with the next widening."""
    run = producer.run("count", diary.input())
    producer.wait("count", run.run_id, timeout=15)
    assert diary.lines == [f"{what} {step}" for step in ("one", "two", "three") for what in ("begin", "end")]


def test_workflow_level_on_error_fires_once_on_terminal_failure_and_after_the_steps(
    producer: Rival, diary: Diary
) -> None:
    run = producer.run("handled", diary.input())
    result = producer.wait("handled", run.run_id, timeout=15)
    assert (result.status, result.failed_step) == ("failed", "boom")
    assert diary.lines[2:] == ["boom", "step handler boom ValueError 1", "workflow handler boom ValueError"]


def test_a_handler_that_raises_is_recorded_and_changes_nothing_else(producer: Rival, diary: Diary) -> None:
    run = producer.run("badly-handled", diary.input())
    result = producer.wait("badly-handled", run.run_id, timeout=15)
    assert (result.status, result.failed_step) == ("failed", "boom")
    assert result.error is not None
    assert result.error["message"] == "no axe"
    assert diary.lines == ["boom", "broken handler", "workflow handler boom ValueError"]
    handler = next(s for s in producer.state(run.run_id).steps if s.path == "boom!on_error")
    assert handler.error is not None
    assert (handler.status, handler.error["message"]) == ("failed", "the handler broke too")


# -- run and wait -----------------------------------------------------------------------------------------


def test_run_returns_the_run_id_and_status(producer: Rival, diary: Diary) -> None:
    run_id = f"seed-{uuid.uuid4().hex}"
    assert producer.run("count", diary.input(), run_id=run_id) == Started(run_id, "started")
    assert producer.run("count", diary.input(), run_id=run_id) == Started(run_id, "running")
    producer.wait("count", run_id, timeout=15)
    assert len(diary.lines) == 6


def test_wait_returns_the_terminal_result(producer: Rival, diary: Diary) -> None:
    run = producer.run("count", diary.input())
    result = producer.wait("count", run.run_id, timeout=15)
    assert (result.run_id, result.workflow, result.status) == (run.run_id, "count", "completed")
    assert result.result == {"sum": 3}


def test_the_instances_wait_returns_the_terminal_result(producer: Rival, diary: Diary) -> None:
    instance = producer.get("count").get_or_create(f"seed-{uuid.uuid4().hex}")
    assert instance.run(diary.input()).status == "started"
    assert instance.wait(timeout=15).result == {"sum": 3}
    assert instance.get_state().status == "completed"
    assert instance.cancel() is False


def test_waiting_too_long_raises_a_clear_error_and_the_run_goes_on(producer: Rival, diary: Diary) -> None:
    run = producer.run("holding", diary.input())
    said = f"Run '{run.run_id}' of workflow 'holding' was still … after 0.2 s. It continues: wait again, or cancel it."
    with pytest.raises(WaitTimeout, match=whole(said)):
        producer.wait("holding", run.run_id, timeout=0.2)
    diary.let_go()
    assert producer.wait("holding", run.run_id, timeout=15).status == "completed"


def test_custom_timeout_and_poll_interval_are_respected(own: Settings, fleet: Workers, diary: Diary) -> None:
    """Without a broker no run-end notification arrives, so that every read is a poll."""
    with Rival(settings=own) as rival, Rival(settings=own.with_(broker_url=None)) as waiting:
        run = rival.run("holding", diary.input())
        looks: list[float] = []
        look = waiting._result_or_status

        def counted(run_id: str) -> RunResult | str:
            looks.append(time.monotonic())
            return look(run_id)

        waiting._result_or_status = counted  # type: ignore[method-assign]
        began = time.monotonic()
        with pytest.raises(WaitTimeout):
            waiting.wait("holding", run.run_id, timeout=0.55, poll_interval=0.1)
        assert time.monotonic() - began >= 0.55
        pauses = [after - before for before, after in pairwise(looks)]
        assert min(pauses[:-1]) >= 0.1, "the last look is at the deadline"
        assert 2 <= len(looks) <= 7
        diary.let_go()
        rival.wait("holding", run.run_id, timeout=15)


def test_internal_actions_are_not_part_of_the_public_surface(producer: Rival) -> None:
    for internal in ("attempt", "execute", "execute_next", "on_timeout", "on_step_finished", "begin", "finish"):
        assert not hasattr(producer, internal)
        assert not hasattr(producer.get("count").get_or_create("x"), internal)


# -- regression -------------------------------------------------------------------------------------------


def test_the_sequential_happy_path_is_unchanged_at_its_terminal_output(producer: Rival, diary: Diary) -> None:
    run = producer.run("count", diary.input())
    result = producer.wait("count", run.run_id, timeout=15)
    assert (result.result, result.results) == ({"sum": 3}, {"one": 1, "two": 2, "three": {"sum": 3}})


def test_the_result_and_state_shape_is_preserved_at_completion(producer: Rival, diary: Diary) -> None:
    run = producer.run("count", diary.input())
    result = producer.wait("count", run.run_id, timeout=15)
    assert set(vars(result)) == {"run_id", "workflow", "status", "result", "results", "error", "failed_step"}
    state = producer.state(run.run_id)
    assert (state.input, state.result, state.error) == (diary.input(), {"sum": 3}, None)
    last = state.steps[-1]
    assert (last.status, last.result, last.description, last.error) == ("completed", {"sum": 3}, "counted", None)
    assert last.started_at is not None
    assert last.completed_at is not None
    assert last.started_at <= last.completed_at


def test_many_runs_in_parallel_are_each_deterministic_and_correct(producer: Rival, tmp_path: Path) -> None:
    """The sequential analogue of the seed's forEach: for_each itself comes with the next widening."""
    diaries = []
    for number in range(12):
        (tmp_path / str(number)).mkdir()
        diaries.append(Diary(tmp_path / str(number)))
    started = producer.run_many("count", [diary.input() for diary in diaries])
    for run, diary in zip(started, diaries, strict=True):
        assert producer.wait("count", run.run_id, timeout=20).result == {"sum": 3}
        assert diary.lines == [f"{what} {step}" for step in ("one", "two", "three") for what in ("begin", "end")]
