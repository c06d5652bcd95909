"""The options that a type checker knows are those that are accepted at run time, with the same values."""

from __future__ import annotations

import datetime as dt
import inspect
import re
from collections.abc import Callable, Mapping
from typing import Any, get_args, get_type_hints

import pytest

from rival_client.errors import InvalidArgument
from rival_client.model.limits.limit_options import LIMITS
from rival_client.model.limits.limits import Limit
from rival_client.model.policies.fallback_option import FallbackOption
from rival_client.model.policies.option_fields import DURATIONS, FIELDS, fields_of
from rival_client.model.policies.step_config import StepConfig, Target
from rival_workers import (
    DefinitionError,
    breaker,
    celery_step,
    create_workflow,
    delay_step,
    flow,
    http_step,
    limit,
    rate,
    shell_step,
    step,
    value,
    wait_event_step,
)
from rival_workers.definition import composites, options
from rival_workers.definition.given_steps import OPTIONS, options_for
from tests.support.output import whole

ALL = set(OPTIONS)
REACTIONS = {"on_error", "compensate"}

KNOWN: dict[type, set[str]] = {
    options.StepOptions: ALL,
    options.TaskOptions: ALL - {"name"},
    options.PredefinedOptions: ALL - {"name", "timeout"},
    options.CompositeOptions: set(options_for("function")),
    options.WaitOptions: set(options_for("function")) - {"timeout", "on_timeout"},
    options.FlowStepOptions: {*options_for("flow_step"), "name"},
    # `hooks` are functions beside the policy: they are not options of a step.
    options.PolicyOptions: ALL - REACTIONS - {"name", "tags"} | {"hooks"},
}


@pytest.mark.parametrize("kind", KNOWN, ids=lambda kind: kind.__name__)
def test_a_type_checker_knows_the_options_that_are_accepted(kind: type) -> None:
    assert set(get_type_hints(kind)) == KNOWN[kind]


@pytest.mark.parametrize("key", [key for key in OPTIONS if key in StepConfig.model_fields])
def test_an_option_has_the_type_that_is_accepted(key: str) -> None:
    declared, accepted = get_type_hints(options.StepOptions)[key], StepConfig.model_fields[key].annotation
    if key == "idempotency_key":
        assert declared == str | Callable[..., Any] | None  # `as_key` turns it into data
        return
    if key == "fallback":
        assert declared == FallbackOption  # `as_fallback` turns it into data
    elif key in LIMITS:
        assert Limit in get_args(declared)  # `read_limits` makes a tuple of it
    elif key in ("retry_on", "no_retry_on"):
        assert set(get_args(options.ErrorNames)) <= set(get_args(declared))  # `as_names` turns it into data
    elif key == "circuit_breaker":
        assert declared == Mapping[str, Any] | None  # made by `breaker(…)`
    elif key in DURATIONS:
        assert set(get_args(declared)) == {*(get_args(accepted) or [accepted]), *get_args(options.Duration)}
    else:
        assert declared == accepted


BUILDER = create_workflow("any")
TAKES: list[tuple[Callable[..., Any], type]] = [
    (http_step, options.PredefinedOptions),
    (shell_step, options.PredefinedOptions),
    (celery_step, options.TaskOptions),
    (wait_event_step, options.WaitOptions),
    (BUILDER.step, options.StepOptions),
    (BUILDER.wait_event, options.WaitOptions),
    (BUILDER.delay, options.DelayUnits),
    *[
        (getattr(where, name), options.CompositeOptions)
        for where in (composites, BUILDER)
        for name in ("branch", "parallel", "for_each", "loop", "workflow")
    ],
]


@pytest.mark.parametrize(("function", "kind"), TAKES, ids=lambda one: getattr(one, "__qualname__", None))
def test_what_makes_a_step_takes_these_options_beside_its_own(function: Callable[..., Any], kind: type) -> None:
    parameters = inspect.signature(function).parameters
    [rest] = [one for one in parameters.values() if one.kind is one.VAR_KEYWORD]
    assert rest.annotation == f"Unpack[{kind.__name__}]"
    assert not set(get_type_hints(kind)) & (set(parameters) - {rest.name})


def test_the_units_of_a_delay_are_those_that_the_builder_takes() -> None:
    own = inspect.signature(delay_step).parameters
    assert set(get_type_hints(options.DelayUnits)) == set(own) - {"name", "unknown"}


@pytest.mark.parametrize(
    ("option", "problem"),
    [
        ({"timeout": True}, "option timeout: Input should be a valid number"),
        ({"timeout": "5"}, "option timeout: Input should be a valid number"),
        ({"delay": "5"}, "option delay: Input should be a valid number"),
        ({"max_retries": True}, "option max_retries: Input should be a valid integer"),
        ({"max_attempts": "3"}, "option max_attempts: Input should be a valid integer"),
        ({"kill_on_timeout": "yes"}, "option kill_on_timeout: Input should be a valid boolean"),
        (
            {"circuit_breaker": breaker(" ")},
            "option circuit_breaker.name: String should have at least 1 character",
        ),
        (
            {"circuit_breaker": breaker("a", failures=True)},
            "option circuit_breaker.failures: Input should be a valid integer",
        ),
        (
            {"circuit_breaker": breaker("a", reset="5")},  # type: ignore[arg-type]
            "option circuit_breaker.reset: Input should be a valid number",
        ),
        ({"tags": 5}, "option tags: give a text or a list of texts, not 5"),
        ({"metadata": {"a": object()}}, "option metadata: the value is not JSON: object is not JSON"),
        ({"metadata": [1]}, "option metadata: Input should be a valid dictionary"),
    ],
)
def test_a_value_of_another_type_is_refused(option: dict[str, Any], problem: str) -> None:
    with pytest.raises(DefinitionError) as caught:
        create_workflow("w").step(clean, **option).build()
    at = re.escape(__file__) + r":\d+"
    assert re.fullmatch(rf"{at}: workflow 'w': steps\[0\]: {re.escape(problem)} \({at}\)", str(caught.value))


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (
            lambda: limit("openai"),
            "Invalid argument max: 'openai' is the name of a limit, and its number is missing: give 'openai', 5",
        ),
        (
            lambda: rate("openai", per=1),
            "Invalid argument max: 'openai' is the name of a limit, and its number is missing: give 'openai', 5",
        ),
        (lambda: limit(5, "openai"), "Invalid argument name: the name comes before the number: give 'openai', 5"),  # type: ignore[arg-type]
    ],
)
def test_a_limit_without_its_number_says_how_to_give_it(make: Callable[[], Any], problem: str) -> None:
    with pytest.raises(ValueError, match=whole(problem)):
        make()


@pytest.mark.parametrize(
    ("make", "argument", "problem"),
    [
        (lambda: limit(0), "max", "0 is not a whole number from 1 to 1,000,000"),
        (lambda: limit("openai", -1), "max", "-1 is not a whole number from 1 to 1,000,000 (limit 'openai')"),
        (lambda: limit("openai", True), "max", "True is not a whole number from 1 to 1,000,000 (limit 'openai')"),
        (lambda: limit("openai", 5.0), "max", "5.0 is not a whole number from 1 to 1,000,000 (limit 'openai')"),  # type: ignore[arg-type]
        (lambda: rate(5, per="1"), "per", "'1' is not a duration: give more than 0 seconds, or a timedelta"),  # type: ignore[arg-type]
        (lambda: rate(5, per=0), "per", "0 is not a duration: give more than 0 seconds, or a timedelta"),
        (
            lambda: limit("a", 5, max_waiting=-1),
            "max_waiting",
            "-1 is not a whole number from 0 on, or None (limit 'a')",
        ),
        (lambda: limit("a", 5, on_full="stop"), "on_full", "'stop' is not 'wait' or 'skip' or 'fail' (limit 'a')"),  # type: ignore[arg-type]
        (lambda: limit(" ", 5), "name", "' ' is not a name: give 1 to 200 characters (limit ' ')"),
        (
            lambda: limit("job!singleton", 5),
            "name",
            "'job!singleton' is the name of the limit that singleton runs have: give another one (limit "
            "'job!singleton')",
        ),
        (lambda: limit("a", 5, fair=3), "fair", "Input should be a valid string (limit 'a')"),  # type: ignore[arg-type]
    ],
)
def test_a_limit_that_makes_no_sense_names_itself_and_what_is_wrong(
    make: Callable[[], Any], argument: str, problem: str
) -> None:
    with pytest.raises(InvalidArgument) as caught:
        make()
    assert (caught.value.argument, caught.value.problem) == (argument, problem)


VALUES: dict[str, Any] = {
    "deadline": 5,
    "delay": 5,
    "scheduled_at": dt.datetime(2030, 1, 1, tzinfo=dt.UTC),
    "on_failure": "skip",
    "fallback": value(1),
    "concurrency_limit": 5,
    "rate_limit": rate(5, per=1),
    "circuit_breaker": breaker("b"),
    "idempotency_key": "c:{input.order}",
    "idempotency_ttl": 60,
    "idempotency_scope": "fleet",
}
NODES: dict[str, tuple[Target, Callable[..., Any]]] = {
    "branch": ("function", lambda **given: composites.branch("b", when=clean, then=[clean], **given)),
    "loop": ("function", lambda **given: composites.loop("l", do=[clean], until=clean, **given)),
    "wait_event": ("function", lambda **given: wait_event_step("topic", **given)),
    "flow": ("flow", lambda **given: step(flow("f", register=False)(lambda ctx: None), **given)),
    "external step": ("external", lambda **given: step(clean, execution_mode="external", **given)),
}


@pytest.mark.parametrize(
    ("kind", "name"),
    [(kind, name) for kind, (target, _) in NODES.items() for name in sorted(FIELDS.keys() - fields_of(target))],
)
def test_an_option_that_a_node_cannot_have_says_what_to_write_instead(kind: str, name: str) -> None:
    with pytest.raises(DefinitionError) as refused:
        create_workflow("w").steps([NODES[kind][1](**{name: VALUES[name]})]).build()
    [problem] = refused.value.problems
    assert re.search(f"{kind} has no option '{name}': (give|put) ", problem), problem


def test_numbers_and_durations_are_taken() -> None:
    given: dict[str, Any] = {
        "timeout": 5,
        "base_delay": 0,
        "max_retries": 2,
        "kill_on_timeout": True,
        "metadata": {"a": 1},
    }
    created = create_workflow("w").step(clean, **given, delay=dt.timedelta(minutes=1)).build()
    assert created.document.own["clean"] == {**given, "delay": 60.0}


def clean() -> None: ...
