"""What follows from an attempt's outcome, without a store: the arithmetic of retries and backoffs."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rival_client.model.payload import Json
from rival_workers.engine.decisions import (
    End,
    Failure,
    Retry,
    Success,
    decide,
    decide_lost,
    effective_max,
    retry_delay,
    timed_out,
)
from rival_workers.engine.plan import StepConfig
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
    assert decision.status == "failed"
    assert decision.error == ERROR


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


def test_a_step_may_lose_its_executor_so_often_and_no_oftener() -> None:
    fates = [decide_lost(lost, 3, ERROR) for lost in range(5)]
    assert fates[:3] == [None, None, None]
    assert fates[3] == fates[4] == End("failed", error=ERROR, hard=True, outcome="lost")
