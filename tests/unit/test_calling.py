"""Whatever a step does becomes an outcome: nothing that user code raises or returns gets past the call."""

from __future__ import annotations

import asyncio
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from rival_workers import StepError, StepState
from rival_workers.definition.inject import STEP_NAMES, injection
from rival_workers.engine.decisions import Failure, Success
from rival_workers.runtime.calling import MAX_MESSAGE, call


def outcome(function: Any, limit: int = 1000) -> Success | Failure:
    context: Any = SimpleNamespace(state=StepState(), run=SimpleNamespace(step="charge", run_id="order-1", attempt=2))
    context.call_function = lambda injection: injection.call(context)
    return call(injection(function, STEP_NAMES), context, limit)


def failure(function: Any, limit: int = 1000) -> Failure:
    found = outcome(function, limit)
    assert isinstance(found, Failure)
    return found


def raises(error: BaseException) -> Any:
    def step() -> None:
        raise error

    return step


def test_sync_and_async_functions_succeed_with_their_result() -> None:
    async def later() -> int:
        await asyncio.sleep(0)
        return 2

    assert outcome(lambda: 1) == Success("1")  # type: ignore[arg-type]
    assert outcome(later) == Success("2")  # type: ignore[arg-type]


def test_state_and_skip_are_part_of_the_outcome() -> None:
    def skips(state: Any) -> None:
        state.skipped = True
        state.description = "not today"

    assert outcome(skips) == Success("null", '{"skipped":true,"description":"not today"}', skipped=True)  # type: ignore[arg-type]


def test_a_plain_exception_stops_and_a_step_error_says_what_should_follow() -> None:
    plain = failure(raises(ValueError("no tree")))
    assert (plain.behavior, plain.error["type"], plain.error["message"]) == ("stop", "ValueError", "no tree")
    assert plain.error["attempt"] == 2
    asked = failure(raises(StepError("later", behavior="retry", max_attempts=3, backoff="jitter")))
    assert (asked.behavior, asked.max_attempts, asked.backoff) == ("retry", 3, "jitter")


@pytest.mark.parametrize("error", [SystemExit(3), asyncio.CancelledError(), GeneratorExit(), MemoryError()], ids=repr)
def test_a_step_that_ends_the_process_has_failed_and_the_worker_has_not(error: BaseException) -> None:
    assert failure(raises(error)).error["type"] == type(error).__name__


def test_a_step_that_recurses_for_ever_has_failed() -> None:
    def down() -> Any:
        return down()

    assert failure(down).error["type"] == "RecursionError"


@pytest.mark.parametrize("value", [object(), float("nan"), {1, 2}, b"x"], ids=lambda value: type(value).__name__)
def test_a_result_that_is_not_json_fails_the_step_with_that_reason(value: Any) -> None:
    error = failure(lambda: value).error
    assert error["type"] == "InvalidPayload"
    assert error["message"].startswith("the result of step 'charge' of run 'order-1' is not JSON: ")


def test_a_result_or_state_over_the_limit_fails_the_step_with_that_reason() -> None:
    def notes(state: Any) -> None:
        state.page = "x" * 2000

    assert "over the limit of 1,000" in failure(lambda: "x" * 2000).error["message"]
    assert "the state of step 'charge'" in failure(notes).error["message"]


def test_the_state_of_a_failed_attempt_is_kept_when_it_can_be() -> None:
    def notes(state: Any) -> None:
        state.page = 3
        raise StepError("more", behavior="retry")

    def bad_notes(state: Any) -> None:
        state.page = object()
        raise StepError("more", behavior="retry")

    assert failure(notes).state == '{"page":3}'
    assert failure(bad_notes).state is None


def test_any_error_can_be_stored() -> None:
    class Broken(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no words")

    assert failure(raises(Broken())).error["message"] == "(its __str__ raised RuntimeError)"
    assert failure(raises(ValueError("nul \x00, surrogate \ud800"))).error["message"] == "nul \\0, surrogate ?"
    assert len(failure(raises(ValueError("x" * 100_000))).error["message"]) == MAX_MESSAGE


def test_the_traceback_shows_the_users_frames_and_no_values() -> None:
    def step() -> None:
        password = "hunter2"
        raise ValueError(len(password))

    trace = failure(step).error["traceback"]
    assert __file__ in trace
    assert "/rival_workers/" not in trace
    assert sys.exc_info() == (None, None, None)
