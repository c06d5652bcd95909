"""The driver for other schedulers: the same options and decisions as in runs, for programs that call and wait."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rival_client.errors import InvalidArgument
from rival_client.model.policies.matchers import Node, default, tagged
from rival_client.model.policies.step_config import StepConfig
from rival_workers import DefinitionError, RetryWith, StepError, llm_policy, named, retry_with, value
from rival_workers.driver import End, FallBack, Policy, Raised, Retry, Returned, TimedOut, resolve
from rival_workers.engine import decisions
from rival_workers.runtime.attempt.invoke import failure
from tests.support.output import whole

BROKEN = ConnectionError("broken")


def driven(policy: Policy, function: Callable[[int, dict[str, Any]], Any], most: int = 50) -> tuple[End, list[float]]:
    """A program that executes a step: how it has ended, and the delays. It does not wait."""
    delays: list[float] = []
    overrides: dict[str, Any] = {}
    has_fallen_back = False
    for attempt in range(1, most):
        try:
            outcome: Any = Returned(function(attempt, overrides))
        except Exception as error:
            outcome = TimedOut() if isinstance(error, TimeoutError) else Raised(error)
        decision = policy.after(outcome, attempt, has_fallen_back=has_fallen_back)
        if isinstance(decision, FallBack):
            decision = policy.after_fallback(decision, Returned(decision.function(decision.error)))
        if isinstance(decision, End):
            return decision, delays
        delays.append(decision.delay)
        overrides, has_fallen_back = dict(decision.overrides), decision.is_fallback
    raise AssertionError("it never ends")


def raising(error: Exception, until: int = 99) -> Callable[[int, dict[str, Any]], Any]:
    def function(attempt: int, overrides: dict[str, Any]) -> Any:
        if attempt < until and not overrides:
            raise error
        return attempt, overrides

    return function


# -- resolving --------------------------------------------------------------------------------------------


def test_layers_are_as_in_runs_and_each_value_says_where_it_comes_from() -> None:
    policy = resolve(
        "ask",
        {"timeout": 5, "heartbeat": 2},
        policies=[(named("as.*"), {"timeout": 90, "max_retries": 3}), (default, {"backoff": "none"})],
        run_rules=[("ask", {"timeout": 60})],
    )
    assert (policy.options.timeout, policy.options.heartbeat, policy.options.max_retries) == (60, 2, 3)
    assert policy.options.backoff is None, "in a list, the first rule that matches counts"
    assert policy.because == {
        "timeout": "run rule 1: name=ask",
        "heartbeat": "the step's own",
        "max_retries": "workflow rule 1: regex=as.*",
    }
    assert resolve("ask", {"timeout": 5}, run_rules=[], mode="replace").options == StepConfig()


def test_predicates_and_matchers_see_the_node() -> None:
    def is_slow(node: Node) -> bool:
        return node.function is raising

    node = Node("ask", "step", "shop/ask", workflow="shop", tags=("external",), function=raising)
    rules: list[Any] = [(is_slow, {"timeout": 9}), (default, {"timeout": 1})]
    assert resolve("ask", policies=rules, node=node).options.timeout == 9
    assert resolve("ask", policies=rules).options.timeout == 1
    assert resolve("ask", run_rules=[(tagged("external"), {"timeout": 7})], node=node).options.timeout == 7


def test_all_problems_are_named_at_once() -> None:
    def broken(node: Node) -> bool:
        raise KeyError("x")

    with pytest.raises(DefinitionError) as refused:
        resolve("ask", {"timeuot": 1}, policies=[("ask", {"timeout": -1}), (broken, {})])
    assert [problem.partition(": ")[0] for problem in refused.value.problems] == ["step 'ask'"] * 3
    with pytest.raises(
        DefinitionError,
        match=whole("step 'ask': on_timeout=\"retry\" needs more than one attempt: give max_attempts=2 or more"),
    ):
        resolve("ask", {"on_timeout": "retry"})
    with pytest.raises(
        InvalidArgument,
        match=whole(
            "Invalid argument run_rules: run_rules[0]: option fallback: give value(…) or retry_with(…): a "
            "function is code."
        ),
    ):
        resolve("ask", run_rules=[("ask", {"fallback": raising})])


# -- deciding ---------------------------------------------------------------------------------------------


def test_a_step_that_works_in_the_end_is_completed_with_its_value() -> None:
    policy = resolve("ask", {"max_retries": 4, "backoff": "exponential", "base_delay": 1, "max_delay": 3})
    assert driven(policy, raising(BROKEN, until=5)) == (End("completed", (5, {})), [1, 2, 3, 3])


@pytest.mark.parametrize(
    ("fallback", "completed"),
    [(value(7), 7), (retry_with(model="mini"), (4, {"model": "mini"}))],
    ids=["value", "retry"],
)
def test_each_fallback_counts_once_after_the_last_retry(fallback: Any, completed: Any) -> None:
    policy = resolve("ask", {"max_retries": 2, "backoff": "none", "fallback": fallback})
    end, delays = driven(policy, raising(BROKEN))
    assert (end.status, end.value, end.has_fallen_back) == ("completed", completed, True)
    assert len(delays) == (2 if completed == 7 else 3)


def test_a_fallback_function_gives_the_value_or_asks_for_another_attempt() -> None:
    policy = resolve("ask", policies=[("ask", {"fallback": lambda error: error["message"]})])  # type: ignore[typeddict-item]
    end, _ = driven(policy, raising(BROKEN))
    assert (end.status, end.value, end.has_fallen_back) == ("completed", "broken", True)
    again = resolve("ask", {"fallback": lambda error: RetryWith(model="mini")})
    assert driven(again, raising(BROKEN))[0].value == (2, {"model": "mini"})


@pytest.mark.parametrize(("on_failure", "status"), [("halt", "failed"), ("skip", "skipped"), ("dead_letter", "failed")])
def test_a_fallback_that_fails_leaves_the_error_of_the_step(on_failure: str, status: str) -> None:
    policy = resolve("ask", {"fallback": raising, "on_failure": on_failure})
    fall_back = policy.after(Raised(BROKEN), 1)
    assert isinstance(fall_back, FallBack)
    end = policy.after_fallback(fall_back, Raised(ValueError("worse")))
    assert isinstance(end, End)
    assert (end.status, end.dead_letter, (end.error or {})["message"]) == (
        status,
        on_failure == "dead_letter",
        "broken",
    )


def test_timeouts_deadlines_budgets_and_retry_after_count_as_in_runs() -> None:
    slow = resolve("ask", {"timeout": 5, "on_timeout": "retry", "max_attempts": 2, "backoff": "none"})
    assert slow.after(TimedOut(), 1) == Retry(0.0)
    end = slow.after(TimedOut(), 2)
    assert isinstance(end, End)
    assert (end.error or {})["type"] == "StepTimeout"
    policy = resolve("ask", {"max_retries": 5, "base_delay": 10, "retry_budget": 3})
    late = policy.after(Raised(BROKEN), 1, left=9.0)
    assert isinstance(late, End)
    assert (late.error or {})["not_retried"] == "the next attempt would begin in 10 s, but the deadline is over in 9 s"
    spent = policy.after(Raised(BROKEN), 1, retries=3)
    assert isinstance(spent, End)
    assert (spent.error or {})["type"] == "RetryBudgetSpent"
    asks = StepError("busy", behavior="retry", retry_after=60)
    assert policy.after(Raised(asks), 1) == Retry(60.0)


errors = st.sampled_from([ValueError("x"), BROKEN, TimeoutError("x"), StepError("x"), StepError("x", behavior="retry")])
policies = st.fixed_dictionaries(
    {},
    optional={
        "max_retries": st.integers(0, 6),
        "backoff": st.sampled_from(["none", "linear", "exponential", "jitter"]),
        "base_delay": st.floats(0, 5),
        "no_retry_on": st.sampled_from([(), ("ValueError",), (TimeoutError,)]),
        "on_failure": st.sampled_from(["halt", "skip", "dead_letter"]),
        "fallback": st.sampled_from([value(1), retry_with(a=1)]),
    },
)


@settings(deadline=None)
@given(policies, errors, st.integers(1, 9), st.none() | st.floats(0, 20), st.floats(0, 0.99))
def test_a_decision_is_that_of_the_engine(
    own: Any, error: Any, attempt: int, left: float | None, chance: float
) -> None:
    policy = resolve("ask", own)
    found = policy.after(Raised(error), attempt, left, chance=chance)
    expected = decisions.decide(policy.options, attempt, failure(error, attempt), chance, left=left)
    if isinstance(expected, decisions.Retry):
        assert isinstance(found, Retry)
        assert (found.delay, found.is_fallback) == (expected.delay, expected.fallback is not None)
        assert left is None or found.delay < left or found.is_fallback
    else:
        assert isinstance(expected, decisions.End)
        assert isinstance(found, End)
        assert (found.status, found.dead_letter) == (expected.status, expected.dead_letter)


@settings(deadline=None)
@given(policies, errors)
def test_a_step_ends_after_at_most_its_attempts_and_one_for_its_fallback(own: Any, error: Any) -> None:
    end, delays = driven(resolve("ask", own), raising(error))
    assert len(delays) <= own.get("max_retries", 0) + 1
    assert end.status in ("completed", "skipped", "failed")
    assert all(0 <= delay <= 30 for delay in delays)


def test_presets_are_options_like_any_others() -> None:
    end, delays = driven(resolve("ask", llm_policy(base_delay=0)), raising(ValueError("wrong request")))
    assert (end.status, delays) == ("failed", [])


@pytest.mark.parametrize("attempt", [1, 4, 50])
def test_jitter_is_spread_evenly_over_the_exponential_delay(attempt: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The distance of Kolmogorov and Smirnov from an even distribution, at a level of one per cent."""
    monkeypatch.setattr(random, "random", random.Random(12).random)
    policy = resolve("ask", {"max_retries": 99, "backoff": "jitter", "base_delay": 2.0, "max_delay": 30.0})
    longest = min(2.0 * 2 ** (attempt - 1), 30.0)
    found = [policy.after(Raised(BROKEN), attempt) for _ in range(2000)]
    shares = sorted(one.delay / longest for one in found if isinstance(one, Retry))
    assert len(shares) == 2000
    distance = max(max((n + 1) / 2000 - share, share - n / 2000) for n, share in enumerate(shares))
    assert distance < 1.63 / 2000**0.5
