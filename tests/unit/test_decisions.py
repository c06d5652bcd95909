"""What follows from an attempt's outcome, without a store: the arithmetic of retries and backoffs."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rival_client.model.payload import Json
from rival_client.model.policies.fallbacks import Fallback
from rival_client.model.policies.step_config import StepConfig
from rival_workers.engine.decisions import (
    Decision,
    End,
    Failure,
    FallBack,
    Retry,
    Success,
    decide,
    final,
    timed_out,
)
from rival_workers.engine.retries import effective_max, retry_delay
from rival_workers.errors import BACKOFFS, BEHAVIORS

ERROR = {"type": "Boom", "message": "boom", "attempt": 1}
maxima = st.none() | st.integers(1, 50)
configs = st.builds(
    StepConfig,
    max_attempts=maxima,
    backoff=st.none() | st.sampled_from(BACKOFFS),
    base_delay=st.floats(0, 1e6),
    max_delay=st.floats(0, 1e6),
    on_timeout=st.sampled_from(["stop", "retry"]),
)
failures = st.builds(
    Failure,
    error=st.just(ERROR),
    behavior=st.sampled_from(BEHAVIORS),
    max_attempts=maxima,
    backoff=st.none() | st.sampled_from(BACKOFFS),
)


@pytest.mark.parametrize(
    ("config", "error", "effective"),
    [
        (None, None, 1),
        (None, 1, 1),
        (None, 5, 5),
        (3, None, 3),
        (3, 2, 2),
        (3, 3, 3),
        (3, 5, 3),
        (1, 5, 1),
    ],
)
def test_an_error_can_lower_the_configured_maximum_and_never_raise_it(
    config: int | None, error: int | None, effective: int
) -> None:
    assert effective_max(config, error) == effective


@given(maxima, maxima)
def test_the_effective_maximum_is_the_seeds_formula(config: int | None, error: int | None) -> None:
    wanted = error if error is not None else config if config is not None else 1
    assert effective_max(config, error) == min(wanted, config if config is not None else math.inf)


@given(configs, failures)
def test_a_step_that_always_fails_is_tried_exactly_the_effective_maximum_of_times(
    config: StepConfig, failure: Failure
) -> None:
    attempts, decision = 1, decide(config, 1, failure)
    while isinstance(decision, Retry):
        attempts += 1
        decision = decide(config, attempts, failure)
    allowed = effective_max(config.max_attempts, failure.max_attempts) if failure.behavior == "retry" else 1
    assert attempts == allowed
    assert isinstance(decision, End)
    assert (decision.status, ERROR.items() <= (decision.error or {}).items()) == ("failed", True)


@pytest.mark.parametrize(
    ("backoff", "delays"),
    [
        ("none", [0, 0, 0, 0]),
        ("linear", [2, 4, 6, 7]),
        ("exponential", [2, 4, 7, 7]),
        ("jitter", [1, 2, 3.5, 3.5]),
        (None, [2, 4, 6, 7]),
    ],
)
def test_each_backoff_has_its_own_row_of_delays_up_to_the_cap(backoff: str | None, delays: list[float]) -> None:
    config = StepConfig(backoff=backoff, base_delay=2, max_delay=7)  # type: ignore[arg-type]
    assert [retry_delay(config, None, attempt, chance=0.5) for attempt in (1, 2, 3, 4)] == delays


def test_the_errors_backoff_comes_before_the_steps() -> None:
    config = StepConfig(backoff="exponential", base_delay=1)
    assert retry_delay(config, "none", 3, 0.0) == 0
    assert retry_delay(config, "linear", 3, 0.0) == 3
    assert retry_delay(config, None, 3, 0.0) == 4


@given(configs, st.none() | st.sampled_from(BACKOFFS), st.integers(1, 10**9), st.floats(0, 1, exclude_max=True))
def test_a_delay_is_finite_and_between_0_and_max_delay_at_any_attempt(
    config: StepConfig, backoff: str | None, attempt: int, chance: float
) -> None:
    delay = retry_delay(config, backoff, attempt, chance)  # type: ignore[arg-type]
    assert 0 <= delay <= config.max_delay
    assert math.isfinite(delay)


@given(st.integers(1, 10**6), st.floats(0, 1, exclude_max=True))
def test_jitter_is_its_share_of_the_exponential_delay(attempt: int, chance: float) -> None:
    config = StepConfig(base_delay=0.1, max_delay=100)
    full = retry_delay(config, "exponential", attempt, 0.0)
    assert retry_delay(config, "jitter", attempt, chance) == full * chance


@pytest.mark.parametrize("backoff", ["linear", "exponential"])
def test_delays_never_shrink_from_attempt_to_attempt(backoff: str) -> None:
    config = StepConfig(backoff=backoff, base_delay=0.3, max_delay=1e9)  # type: ignore[arg-type]
    delays = [retry_delay(config, None, attempt, 0.0) for attempt in range(1, 200)]
    assert delays == sorted(delays)


@pytest.mark.parametrize(("skipped", "status"), [(False, "completed"), (True, "skipped")])
def test_a_success_ends_the_step_with_its_result_and_state(skipped: bool, status: str) -> None:
    outcome = Success(Json("1"), Json('{"description":"x"}'), skipped)
    end = decide(StepConfig(max_attempts=5), 1, outcome)
    assert end == End(status, Json("1"), Json('{"description":"x"}'))  # type: ignore[arg-type]


@pytest.mark.parametrize(("behavior", "hard"), [("stop", True), ("continue", False), ("retry", True)])
def test_only_continue_fails_softly(behavior: str, hard: bool) -> None:
    end = decide(StepConfig(), 1, Failure(ERROR, behavior=behavior, state=Json("{}")))  # type: ignore[arg-type]
    assert isinstance(end, End)
    assert (end.status, end.hard, end.error, end.state) == ("failed", hard, ERROR, "{}")


def test_a_retry_carries_the_error_and_the_state_of_the_attempt_before_it() -> None:
    failure = Failure(ERROR, behavior="retry", state=Json('{"page":3}'))
    retry = decide(StepConfig(max_attempts=2, base_delay=0.25), 1, failure)
    assert retry == Retry(0.25, ERROR, Json('{"page":3}'), "failed")


@given(configs, st.integers(1, 60))
def test_a_timeout_is_decided_like_any_other_failure(config: StepConfig, attempt: int) -> None:
    decision = decide(config, attempt, timed_out(config, ERROR))
    retries = config.on_timeout == "retry" and attempt < (config.max_attempts or 1)
    assert isinstance(decision, Retry if retries else End)
    assert decision.outcome == "timed_out"


RECORD = {"type": "Boom", "message": "boom", "attempt": 1}
VALUE = Fallback(shape="value", value=[1])
MINI = Fallback(shape="retry_with", overrides={"model": "mini"})
FUNCTION = Fallback(shape="function")
FAILED = End("failed", error=ERROR, hard=True, outcome="failed")
SKIPPED = End("skipped", error=ERROR, outcome="failed")
INSTEAD: dict[str | None, Decision] = {
    "value": End(
        "completed", Json("[1]"), outcome="failed", fallback={"shape": "value", "error": RECORD}, attempt_error=ERROR
    ),
    "retry_with": Retry(0.0, ERROR, fallback={"shape": "retry_with", "overrides": {"model": "mini"}, "error": RECORD}),
    "function": FallBack(ERROR, {"shape": "function", "error": RECORD}),
}


@pytest.mark.parametrize("on_failure", ["halt", "skip", "fallback", "compensate", "dead_letter"])
@pytest.mark.parametrize("fallback", [None, VALUE, MINI, FUNCTION], ids=lambda one: getattr(one, "shape", "none"))
@pytest.mark.parametrize("has_fallen_back", [False, True])
@pytest.mark.parametrize("behavior", BEHAVIORS)
def test_a_final_failure_falls_back_once_and_then_does_what_on_failure_says(
    on_failure: str, fallback: Fallback | None, has_fallen_back: bool, behavior: str
) -> None:
    config = StepConfig(on_failure=on_failure, fallback=fallback)  # type: ignore[arg-type]
    outcome = Failure(ERROR, behavior=behavior)  # type: ignore[arg-type]
    found = decide(config, 1, outcome, has_fallen_back=has_fallen_back)
    if behavior == "continue":
        assert found == replace(FAILED, hard=False)
    elif fallback is not None and not has_fallen_back:
        assert found == INSTEAD[fallback.shape]
    else:
        assert found == (SKIPPED if on_failure == "skip" else replace(FAILED, dead_letter=on_failure == "dead_letter"))


def test_a_step_falls_back_after_its_last_retry_and_is_not_retried_afterwards() -> None:
    config = StepConfig(max_attempts=2, fallback=MINI)
    failure = Failure(ERROR, behavior="retry")
    assert decide(config, 1, failure) == Retry(0.5, ERROR)
    assert decide(config, 2, failure) == INSTEAD["retry_with"]
    assert decide(config, 1, failure, has_fallen_back=True) == FAILED


@pytest.mark.parametrize("how", ["timed_out", "lost", "revoked"])
def test_timeouts_losses_and_revokes_fall_back_and_are_skipped_like_failures(how: str) -> None:
    outcome = Failure(ERROR, outcome=how)
    assert final(StepConfig(fallback=FUNCTION), outcome) == FallBack(
        ERROR, {"shape": "function", "error": RECORD}, outcome=how
    )
    assert final(StepConfig(on_failure="skip"), outcome) == replace(SKIPPED, outcome=how)


def test_a_fallback_and_a_compensation_do_not_fall_back_themselves() -> None:
    config = StepConfig(timeout=5, max_attempts=3, fallback=VALUE, on_failure="skip", on_timeout="retry")
    assert config.of_fallback == StepConfig(timeout=5, max_attempts=1)
    assert config.of_compensation == StepConfig(timeout=5, max_attempts=3, on_timeout="retry")


@pytest.mark.parametrize(
    ("budget", "retries", "goes_on"), [(None, 99, True), (0, 0, False), (2, 1, True), (2, 2, False)]
)
def test_a_retry_that_the_runs_budget_does_not_allow_is_a_final_failure(
    budget: int | None, retries: int, goes_on: bool
) -> None:
    config = StepConfig(max_attempts=9, retry_budget=budget, base_delay=0)
    found = decide(config, 1, Failure(ERROR, behavior="retry"), retries=retries)
    if goes_on:
        assert found == Retry(0.0, ERROR, budget=budget)
    else:
        assert isinstance(found, End)
        assert found.error is not None
        assert (found.status, found.error["type"], found.error["cause"]) == (
            "failed",
            "RetryBudgetSpent",
            {"type": "Boom", "message": "boom"},
        )
        assert found.error["message"] == (
            f"the run has used its retry_budget of {budget}, so the step is not tried again. "
            "The last error was Boom: boom"
        )


def test_a_spent_budget_falls_back_like_any_final_failure() -> None:
    config = StepConfig(max_attempts=9, retry_budget=0, fallback=VALUE)
    found = decide(config, 1, Failure(ERROR, behavior="retry"))
    assert isinstance(found, End)
    assert (found.status, found.result) == ("completed", "[1]")
