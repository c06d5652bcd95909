"""Retries on every store: of any exception, of those that are named, and after the time that an error asks for."""

from __future__ import annotations

from typing import Any

import pytest

from rival_workers import StepError, default, flow, step
from tests.contract.stage import CountedDown
from tests.support.inline import Inline


def flaky(failing: int, error: type[Exception] = ValueError) -> Any:
    """A step that fails so many times."""

    def work(run: Any) -> int:
        if run.attempt <= failing:
            raise error("not yet")
        return run.attempt  # type: ignore[no-any-return]

    return work


def ended(inline: Inline, *steps: Any, **options: Any) -> Any:
    inline.define("w", *steps, **options)
    inline.rival.run("w", run_id="r")
    inline.drain()
    return inline.rival.state("r")


@pytest.mark.parametrize(
    ("options", "error", "attempts", "status"),
    [
        ({"max_retries": 3}, ValueError, 3, "completed"),
        ({"max_retries": 1}, ValueError, 2, "failed"),
        ({"max_attempts": 5}, ValueError, 1, "failed"),
        ({"max_attempts": 5, "retry_on": ValueError}, ValueError, 3, "completed"),
        ({"max_retries": 3, "retry_on": (KeyError, "Conn*")}, ConnectionError, 3, "completed"),
        ({"max_retries": 3, "retry_on": KeyError}, ValueError, 1, "failed"),
        ({"max_retries": 3, "no_retry_on": "ValueError"}, ValueError, 1, "failed"),
    ],
)
def test_a_step_is_retried_as_its_options_say(
    inline: Inline, options: dict[str, Any], error: type[Exception], attempts: int, status: str
) -> None:
    state = ended(inline, step(flaky(2, error), name="a", backoff="none", **options))
    assert (state.status, state.steps[0].attempts) == (status, attempts)


def test_a_rule_retries_every_step(inline: Inline) -> None:
    steps = [step(flaky(1), name="a"), step(flaky(2), name="b")]
    state = ended(inline, *steps, policies=[(default, {"max_retries": 2, "backoff": "none"})])
    assert (state.status, [one.attempts for one in state.steps]) == ("completed", [2, 3])


def test_a_stored_error_says_why_it_was_not_retried(inline: Inline) -> None:
    state = ended(inline, step(flaky(9), name="a", max_attempts=3))
    why = "that takes StepError(behavior='retry'), max_retries or retry_on"
    assert state.error["not_retried"] == state.steps[0].error["not_retried"] == why


def test_the_next_attempt_waits_as_long_as_the_error_says(inline: Inline) -> None:
    def busy() -> None:
        raise StepError("busy", behavior="retry", retry_after=500)

    inline.define("w", step(busy, max_attempts=2, backoff="none"))
    inline.rival.run("w", run_id="r")
    inline.drain()
    [retried] = [one for one in inline.rival.history("r") if one.what == "retried"]
    assert retried.detail["delay"] == 500
    [waiting] = inline.rival.state("r").steps
    assert waiting.status == "waiting_retry"
    assert waiting.due_at is not None
    # From the failure on, which is before its record.
    assert (waiting.due_at - retried.at).total_seconds() == CountedDown(500)


def test_a_flows_step_is_retried_by_the_same_options(inline: Inline) -> None:
    calls: list[int] = []

    def work() -> int:
        calls.append(1)
        if len(calls) < 3:
            raise ConnectionError("not yet")
        return len(calls)

    @flow("f", register=False)
    def body(ctx: Any) -> Any:
        return ctx.step(work, max_retries=5, retry_on=ConnectionError, backoff="none")

    inline.define("w", body)
    inline.rival.run("w", run_id="r")
    inline.drain()
    assert inline.rival.result("r").result == 3
