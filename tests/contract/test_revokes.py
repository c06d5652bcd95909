"""A task id that is revoked fails the attempt that it names, whatever it waits for, and nothing else."""

from __future__ import annotations

from typing import Any

import pytest

from rival_client.broker.message import attempt_id
from rival_workers import StepError, delay_step, flow, step, wait_event_step
from rival_workers.definition.registry import Registry
from tests.contract.stage import every_row
from tests.support.inline import Inline


def never() -> None:
    raise AssertionError("it was to be revoked")


def outcomes(inline: Inline) -> list[tuple[str, int, str]]:
    return [(a.path, a.attempt, a.outcome) for a in inline.rival.state("r").attempts]


def in_history(inline: Inline) -> list[tuple[str | None, str | None]]:
    return [(entry.path, entry.by) for entry in inline.rival.history("r") if entry.what == "revoked"]


def define_flow(inline: Inline, function: Any, name: str) -> None:
    made = flow(name, registry=Registry())(function)
    assert made.definition is not None
    inline.registry.renew(made.definition)
    inline.process.register_workflows()


def start(inline: Inline, *steps: Any, run_id: str = "r", budget: float = 0.0) -> None:
    """The run has begun, and what it opens is left in the doorbell."""
    object.__setattr__(inline.coordinator.settings, "continuation_budget", budget)
    inline.define("w", *steps)
    inline.rival.run("w", run_id=run_id)
    [message] = inline.doorbell.take()
    inline.deliver(message)


def test_an_attempt_that_waits_in_the_queue_fails_and_its_message_is_stale(inline: Inline) -> None:
    start(inline, step(never, name="a"))
    [message] = inline.doorbell.take()
    assert inline.process.revocations.revoke(message.task_id) is not None
    result = inline.rival.result("r")
    assert (result.status, result.failed_step) == ("failed", "a")
    assert result.error is not None
    assert result.error["type"] == "TaskRevoked"
    assert result.error["message"] == (
        "task 'r:a:1' was revoked (in Flower, or by `celery control revoke`). The step's max_attempts decides "
        "whether it is tried again; `rival cancel` ends a run."
    )
    assert outcomes(inline) == [("a", 1, "revoked")]
    assert in_history(inline) == [("a", "revoke")]
    inline.deliver(message)
    assert inline.process.revocations.revoke(message.task_id) is None, "once is enough"


@pytest.mark.parametrize("run_id", ["r", "a:b", "x:a:1", "parent/child:2"])
def test_attempts_are_left_to_those_that_the_step_has(inline: Inline, run_id: str) -> None:
    """Also with colons in the run's id, of which a task id has some, too."""
    start(inline, step(lambda: 7, name="a", max_attempts=2, base_delay=0), run_id=run_id)
    inline.doorbell.take()
    assert inline.process.revocations.revoke(attempt_id(run_id, "a", 1)) is not None
    inline.drain()
    assert inline.rival.result(run_id).result == 7
    assert [a.outcome for a in inline.rival.state(run_id).attempts] == ["revoked", "completed"]


def test_a_retry_that_waits_with_a_countdown_fails(inline: Inline) -> None:
    def flaky(run: Any) -> int:
        if run.attempt == 1:
            raise StepError("not yet", behavior="retry")
        return int(run.attempt)

    start(inline, step(flaky, max_attempts=3, base_delay=20, backoff="linear"))
    inline.drain()
    [(_, waiting)] = inline.later
    assert waiting.task_id == "r:flaky:2"
    assert inline.process.revocations.revoke("r:flaky:2") is not None
    assert outcomes(inline) == [("flaky", 1, "failed"), ("flaky", 2, "revoked")]
    [step_row] = inline.rival.state("r").steps
    assert (step_row.status, step_row.attempts) == ("waiting_retry", 2)


def test_a_short_delay_fails_and_a_long_one_has_no_message_to_revoke(inline: Inline) -> None:
    start(inline, delay_step(seconds=5, name="soon"), delay_step(seconds=500, name="late"))
    assert inline.process.revocations.revoke("r:soon:1") is not None
    assert inline.rival.result("r").status == "failed"
    inline.define("later", delay_step(seconds=500, name="late"))
    inline.rival.run("later", run_id="s")
    inline.drain()
    assert inline.process.revocations.revoke("s:late:1") is None
    assert inline.rival.state("s").status == "suspended"


def test_a_start_that_waits_in_the_queue_is_cancelled(inline: Inline) -> None:
    inline.define("w", step(never, name="a"))
    inline.rival.run("w", run_id="r")
    done = inline.process.revocations.revoke("r")
    assert (done and done.what, inline.rival.state("r").status) == ("run", "cancelled")
    assert inline.doorbell.changed == ["r"], "clients that wait for it are notified"
    inline.drain()
    assert inline.process.revocations.revoke("r") is None


def test_a_child_whose_start_is_revoked_wakes_its_flow(inline: Inline) -> None:
    inline.define("child", step(never, name="a"))

    def parent(ctx: Any) -> str:
        try:
            ctx.call("child", {})
        except Exception as error:
            return type(error).__name__
        return "completed"

    define_flow(inline, parent, "parent")
    inline.rival.run("parent", run_id="p")
    [message] = inline.doorbell.take()
    inline.deliver(message)
    [child] = [run.run_id for run in inline.rival.runs(workflow="child")]
    assert inline.process.revocations.revoke(child) is not None
    inline.drain()
    assert inline.rival.result("p").result == "ChildFailed"


@pytest.mark.parametrize("max_attempts", [1, 2])
def test_a_running_attempt_fails_only_if_it_is_to_be_terminated(inline: Inline, max_attempts: int) -> None:
    did: list[Any] = []

    def slow(run: Any) -> str:
        if run.attempt == 1:
            did.append(inline.process.revocations.revoke("r:slow:1"))
            did.append(inline.process.revocations.revoke("r:slow:1", terminate=True))
        return f"result {run.attempt}"

    start(inline, step(slow, max_attempts=max_attempts, base_delay=0))
    inline.drain()
    result = inline.rival.result("r")
    assert did[0] is None
    assert did[1].pid is not None
    assert in_history(inline) == [("slow", "revoke")]
    assert "late_result_refused" in [entry.what for entry in inline.rival.history("r")]
    if max_attempts == 2:
        assert (result.status, result.result) == ("completed", "result 2")
    else:
        assert (result.status, result.error and result.error["type"]) == ("failed", "TaskRevoked")


def test_an_attempt_that_goes_on_in_place_can_be_revoked(inline: Inline) -> None:
    def second() -> str:
        assert inline.process.revocations.revoke("r:second:1", terminate=True) is not None
        return "too late"

    start(inline, step(lambda: 1, name="first"), step(second), budget=60.0)
    result = inline.rival.result("r")
    assert (result.status, result.failed_step) == ("failed", "second")


def test_a_running_flow_that_is_revoked_fails_with_its_checkpoints(inline: Inline) -> None:
    def act() -> int:
        assert inline.process.revocations.revoke("r:f:1", terminate=True) is not None
        return 1

    def f(ctx: Any) -> int:
        return int(ctx.step(act))

    define_flow(inline, f, "f")
    inline.rival.run("f", run_id="r")
    inline.drain()
    assert inline.rival.result("r").status == "failed"


WRONG = [
    "",
    "r",
    "r:a",
    "r:a:2",
    "r:a:1+1",
    "r:a:0",
    "r:b:1",
    "s:a:1",
    ":a:1",
    "r::1",
    "a:1",
    "r:a:1:1",
    "r:a:x",
    "r:a:-1",
    "r:a:" + "9" * 50,
    "event:x",
    "celery",
    "x" * 5000,
    "r:" * 500 + "1",
]


def test_a_wrong_or_old_id_changes_nothing(inline: Inline) -> None:
    start(inline, step(lambda: 1, name="a"), step(lambda: 2, name="b"))
    messages = inline.doorbell.take()
    before = every_row(inline.store.database)
    for task_id in WRONG:
        assert inline.process.revocations.revoke(task_id, terminate=True) is None, task_id
    assert every_row(inline.store.database) == before
    for message in messages:
        inline.deliver(message)
    inline.drain()
    assert inline.process.revocations.revoke("r:a:1", terminate=True) is None
    assert inline.rival.result("r").status == "completed"


def test_a_wait_without_a_timeout_has_no_message_to_revoke(inline: Inline) -> None:
    start(inline, wait_event_step("paid", name="a"))
    before = every_row(inline.store.database)
    assert inline.process.revocations.revoke("r:a:1", terminate=True) is None
    assert every_row(inline.store.database) == before


def test_after_a_rewind_the_same_id_names_a_new_attempt(inline: Inline) -> None:
    start(inline, step(lambda: 1, name="a"))
    inline.doorbell.take()
    assert inline.process.revocations.revoke("r:a:1") is not None
    inline.rival.retry("r")
    inline.drain()
    assert inline.rival.result("r").status == "completed"
