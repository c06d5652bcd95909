"""One step as a user writes it: the forms it can take, its options, and all that is refused."""

from __future__ import annotations

import datetime as dt
import functools
from dataclasses import dataclass
from typing import Any

import pytest

from rival_client.model.policies.step_config import StepConfig
from rival_workers import step
from rival_workers.definition.define import only_itself
from rival_workers.definition.given_steps import OPTIONS, as_spec, name_of
from rival_workers.definition.inject import Injection
from rival_workers.definition.plan_builder import PlanBuilder
from rival_workers.definition.problems import Scope
from rival_workers.engine.nodes import StepNode
from tests.support.output import as_expected, whole


@dataclass(frozen=True)
class Defined:
    node: StepNode
    handler: Injection | None
    config: StepConfig

    @property
    def name(self) -> str:
        return self.node.name


def define_step(thing: Any) -> Defined:
    """A step as a workflow would have it; ValueError with every problem, one per line."""
    assembly = PlanBuilder(resolve=only_itself)
    [*nodes] = assembly.body([thing], Scope(), "steps")
    if assembly.problems:
        raise ValueError("\n".join(assembly.problems))
    [node] = nodes
    assert isinstance(node, StepNode)
    handler = assembly.calls.get(f"{node.name}!on_error")
    return Defined(node, handler.injection if handler else None, StepConfig(**assembly.own.get(node.name, {})))


def chop(input: Any) -> Any:
    return input


def notify(error: Any) -> None: ...


def test_a_function_is_a_step_under_its_own_name() -> None:
    defined = define_step(chop)
    assert (defined.name, defined.config, defined.handler) == ("chop", StepConfig(), None)


@pytest.mark.parametrize(
    "thing",
    [
        step(chop, timeout=60, max_attempts=3),
        {"fn": chop, "timeout": 60, "max_attempts": 3},
        {"fn": step(timeout=60)(lambda input: input), "name": "chop", "max_attempts": 3},
    ],
    ids=["step()", "dict", "dict with a decorated function"],
)
def test_options_can_be_given_by_step_by_dict_and_by_decorator(thing: Any) -> None:
    defined = define_step(thing)
    assert (defined.name, defined.config.timeout, defined.config.max_attempts) == ("chop", 60, 3)


def test_the_decorator_leaves_the_function_a_function() -> None:
    @step(timeout=5, name="hew")
    def cut(input: Any) -> Any:
        return input

    assert cut("x") == "x"
    assert (define_step(cut).name, define_step(cut).config.timeout) == ("hew", 5)


def test_step_options_come_over_the_decorators() -> None:
    @step(timeout=5, max_attempts=2)
    def cut() -> None: ...

    config = define_step(step(cut, timeout=9)).config
    assert (config.timeout, config.max_attempts) == (9, 2)


@pytest.mark.parametrize("option", ["timeout", "base_delay", "max_delay"])
def test_durations_are_seconds_or_timedelta(option: str) -> None:
    as_timedelta = define_step(step(chop, **{option: dt.timedelta(minutes=1, milliseconds=500)}))
    as_seconds = define_step(step(chop, **{option: 60.5}))
    assert as_timedelta.config == as_seconds.config != StepConfig()


def test_max_retries_and_max_attempts_are_two_options() -> None:
    assert define_step(step(chop, max_retries=2)).config == StepConfig(max_retries=2)
    assert define_step(step(chop, max_attempts=3)).config == StepConfig(max_attempts=3)


def test_both_max_retries_and_max_attempts_are_one_too_many() -> None:
    with pytest.raises(
        ValueError,
        match=whole(
            "steps[0]: max_retries retries every exception, max_attempts caps what asks for a retry: give one "
            "of the two (…)"
        ),
    ):
        define_step(step(chop, max_retries=2, max_attempts=3))


@pytest.mark.parametrize(
    ("value", "expected"),
    [("two", "a valid integer"), (-1, "greater than or equal to 0"), (1.5, "a valid integer")],
)
def test_max_retries_must_be_a_whole_number(value: Any, expected: str) -> None:
    with pytest.raises(ValueError, match=whole(f"steps[0]: option max_retries: Input should be {expected} (…)")):
        define_step(step(chop, max_retries=value))


def test_an_unknown_option_is_named_with_those_that_are_known() -> None:
    with pytest.raises(ValueError) as caught:
        define_step(step(chop, timeuot=3))
    known, at = ", ".join(OPTIONS), f"{__file__}:{chop.__code__.co_firstlineno}"
    wanted = f"steps[0]: unknown option 'timeuot' (did you mean 'timeout'?); known are {known} ({at})"
    assert str(caught.value) == wanted


@pytest.mark.parametrize(
    ("options", "about"),
    [
        ({"timeout": 0}, "steps[0]: option timeout: Input should be greater than 0 (…)"),
        ({"timeout": -1}, "steps[0]: option timeout: Input should be greater than 0 (…)"),
        ({"max_attempts": 0}, "steps[0]: option max_attempts: Input should be greater than or equal to 1 (…)"),
        (
            {"backoff": "quadratic"},
            "steps[0]: option backoff: Input should be 'none', 'linear', 'exponential' or 'jitter' (…)",
        ),
        ({"on_timeout": "ignore"}, "steps[0]: option on_timeout: Input should be 'stop' or 'retry' (…)"),
        ({"base_delay": -1}, "steps[0]: option base_delay: Input should be greater than or equal to 0 (…)"),
    ],
)
def test_an_option_with_a_value_that_makes_no_sense_is_refused(options: dict[str, Any], about: str) -> None:
    with pytest.raises(ValueError, match=whole(about)):
        define_step(step(chop, **options))


def test_all_problems_of_a_step_come_at_once() -> None:
    def badly_named(axe: Any, tree: Any) -> None: ...

    with pytest.raises(ValueError) as caught:
        define_step(step(badly_named, name="no spaces please", on_error=3, timeout=0, speed=9))
    place = f"({__file__}:{badly_named.__code__.co_firstlineno})"
    expected = [
        f"steps[0]: unknown option 'speed'; known are name, … {place}",
        f"steps[0]: step name 'no spaces please': use letters, digits, _, - and .; … {place}",
        f"steps[0]: option timeout: Input should be greater than 0 {place}",
        f"steps[0]: no spaces please: cannot inject parameters 'axe', 'tree': … {place}",
        f"steps[0]: no spaces please's on_error: 3 is not a function {place}",
    ]
    problems = sorted(str(caught.value).splitlines())
    assert as_expected(sorted(expected), problems) == sorted(expected)


@pytest.mark.parametrize("name", ["a", "a-b", "a_b", "step2", "größe", "a.b"])
def test_names_of_letters_digits_and_a_little_more_are_fine(name: str) -> None:
    assert define_step(step(chop, name=name)).name == name


@pytest.mark.parametrize("name", ["a b", "a/b", "a[0]", "a!on_error", "a:b", "-", 7])
def test_names_that_a_path_would_trip_over_are_refused(name: Any) -> None:
    if name == "-":
        assert define_step(step(chop, name=name)).name == "-"
        return
    with pytest.raises(
        ValueError,
        match=whole("steps[0]: step name …: use letters, digits, _, - and .; give one with step(…, name=…) (…)"),
    ):
        define_step(step(chop, name=name))


def test_a_lambda_needs_a_name() -> None:
    with pytest.raises(
        ValueError,
        match=whole(
            "steps[0]: step name '<lambda>': use letters, digits, _, - and .; give one with step(…, name=…) (…)"
        ),
    ):
        define_step(lambda: 1)
    assert define_step(step(lambda: 1, name="one")).name == "one"


GIVE = "is not a step: give a function, step(function, …) or {'fn': function, …}"


@pytest.mark.parametrize(
    ("thing", "problem"),
    [
        (3, f"3 {GIVE}"),
        (None, f"None {GIVE}"),
        ("chop", f"'chop' {GIVE}"),
        ({"timeout": 3}, 'a step given as a dict needs "fn": the function'),
        ({"fn": "chop"}, "str: 'chop' is not a function"),
        (step("chop", timeout=3), "str: 'chop' is not a function"),  # type: ignore[call-overload]
    ],
)
def test_what_is_not_a_step_is_refused_with_what_would_be_one(thing: Any, problem: str) -> None:
    with pytest.raises(ValueError, match=whole(f"steps[0]: {problem}")):
        define_step(thing)


def test_a_handler_is_checked_like_a_step_and_marks_the_node() -> None:
    defined = define_step(step(chop, on_error=notify))
    assert defined.node.on_error
    assert defined.handler is not None
    with pytest.raises(
        ValueError,
        match=whole(
            "steps[0]: chop's on_error: cannot inject parameters 'axe', 'tree': a step may ask for any of ctx, "
            "input, steps, last_step, state, log, run, error, failed_step, workflow_state, run_continues, or "
            "take the whole context as its only argument. Rename it, or give it a default. (…)"
        ),
    ):
        define_step(step(chop, on_error=lambda axe, tree: None))


def test_a_partial_and_a_callable_have_names() -> None:
    class Chopper:
        def __call__(self, input: Any) -> Any: ...

    assert name_of(functools.partial(functools.partial(chop))) == "chop"
    assert name_of(Chopper()) == "Chopper"
    assert as_spec(chop).options == {}


def test_options_may_be_given_to_a_step_that_has_some_already() -> None:
    again = step(step(chop_for_real, timeout=3, max_attempts=2), timeout=5, name="again")
    defined = define_step(again)
    assert (defined.name, defined.config.timeout, defined.config.max_attempts) == ("again", 5, 2)


def chop_for_real() -> None:
    """Something with a name."""


@pytest.mark.parametrize("options", [{}, {"max_attempts": 1}, {"max_retries": 0}])
def test_a_retry_on_timeout_needs_attempts(options: dict[str, Any]) -> None:
    with pytest.raises(
        ValueError,
        match=whole('steps[0]: on_timeout="retry" needs more than one attempt: give max_attempts=2 or more (…)'),
    ):
        define_step(step(chop, timeout=5, on_timeout="retry", **options))


@pytest.mark.parametrize("options", [{"max_attempts": 2}, {"max_retries": 1}])
def test_a_retry_on_timeout_with_attempts_is_fine(options: dict[str, Any]) -> None:
    assert define_step(step(chop, timeout=5, on_timeout="retry", **options)).config.on_timeout == "retry"
