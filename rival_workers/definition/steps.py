"""One step as a user writes it: a function, or a function with options."""

from __future__ import annotations

import datetime as dt
import functools
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Any, Generic, Never, Unpack, overload

from pydantic import ValidationError
from typing_extensions import ParamSpec, TypeVar

from rival_client.model.arguments import MAX_NAME, MAX_SECONDS, shown
from rival_workers.definition.inject import Injection, injection, refuse_generator
from rival_workers.definition.options import StepOptions
from rival_workers.definition.returns import written_function
from rival_workers.engine.plan import StepConfig

Function = Callable[..., Any]
F = TypeVar("F", bound=Function)
P = ParamSpec("P", default=...)
Q = ParamSpec("Q")
T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True, default=Any)

OPTIONS = ("name", "on_error", "compensate", "max_retries", *StepConfig.model_fields)
_DURATIONS = ("timeout", "base_delay", "max_delay", "heartbeat", "deadline")
_OPTIONS_ATTRIBUTE = "__rival_step__"
#: Two options for one thing: a step that has one of them overrides both.
_ATTEMPTS = frozenset({"max_attempts", "max_retries"})


@dataclass(frozen=True)
class StepSpec(Generic[P, T_co]):
    """A function with options, not checked yet. `P`: the function's parameters; `T_co`: its result, awaited."""

    function: Function
    options: Mapping[str, Any]
    #: Problems of the arguments of a predefined step.
    problems: tuple[str, ...] = ()
    #: Its function reads the plan's steps and input, so that a flow cannot call it.
    only_in_plans: bool = False


#: The type of predefined steps (`http_step`, …): type checkers refuse it as an argument of `ctx.step`.
PlanStep = StepSpec[[Never], Any]


@overload
def step(function: StepSpec[Q, T], /, **options: Unpack[StepOptions]) -> StepSpec[Q, T]: ...
@overload
def step(function: Callable[Q, Awaitable[T]], /, **options: Unpack[StepOptions]) -> StepSpec[Q, T]: ...
@overload
def step(function: Callable[Q, T], /, **options: Unpack[StepOptions]) -> StepSpec[Q, T]: ...
@overload
def step(function: None = None, /, **options: Unpack[StepOptions]) -> Callable[[F], F]: ...
def step(function: Any = None, /, **options: Unpack[StepOptions]) -> StepSpec | Callable[[F], F]:
    """`step(chop, timeout=60)` in a list of steps, or `@step(timeout=60)` on the function itself."""
    if function is not None:
        return StepSpec(function, options)

    def decorate(decorated: F) -> F:
        if getattr(decorated, "definition", None) is not None:
            raise TypeError("@step(…) has no effect on a flow that is registered already: put it below @flow(…)")
        setattr(decorated, _OPTIONS_ATTRIBUTE, options)
        return decorated

    return decorate


def as_spec(thing: Any) -> StepSpec:
    """A step in any form that a list of steps accepts: a function, `step(…)`, or a dict with "fn"."""
    if isinstance(thing, StepSpec):
        flat = flattened(thing)
        return replace(flat, options=overridden(decorator_options(flat.function), flat.options))
    if isinstance(thing, Mapping):
        if "fn" not in thing:
            raise ValueError('a step given as a dict needs "fn": the function')
        return as_spec(StepSpec(thing["fn"], {k: v for k, v in thing.items() if k != "fn"}))
    if callable(thing):
        return StepSpec(thing, decorator_options(thing))
    raise ValueError(f"{thing!r} is not a step: give a function, step(function, …) or {{'fn': function, …}}")


def flattened(spec: StepSpec) -> StepSpec:
    """One spec for `step(step(function, …), …)`: outer options override inner ones."""
    if not isinstance(spec.function, StepSpec):
        return spec
    inner = flattened(spec.function)
    return replace(inner, options=overridden(inner.options, spec.options))


def decorator_options(function: Any) -> Mapping[str, Any]:
    """The options of `@step(…)`, also if the function is in a partial."""
    while isinstance(function, functools.partial):
        function = function.func
    options: Mapping[str, Any] = getattr(function, _OPTIONS_ATTRIBUTE, {})
    return options


def keep_decorator_options(of: Any, on: Any) -> None:
    """Copies the options of `@step(…)` from a function to the object that wraps it."""
    if options := decorator_options(of):
        setattr(on, _OPTIONS_ATTRIBUTE, options)


def overridden(options: Mapping[str, Any], by: Mapping[str, Any]) -> dict[str, Any]:
    """Both, where `by` has precedence: field by field, with `max_attempts` and `max_retries` as one field."""
    hidden = _ATTEMPTS if by.keys() & _ATTEMPTS else frozenset()
    return {**{key: value for key, value in options.items() if key not in hidden}, **by}


def name_of(function: Function) -> str:
    while isinstance(function, functools.partial):
        function = function.func
    name = getattr(function, "__name__", None) or type(function).__name__
    return str(name)


def is_name(name: Any) -> bool:
    if not isinstance(name, str) or len(name) > MAX_NAME:
        return False
    return name.replace("_", "a").replace("-", "a").replace(".", "a").isalnum()


def location(function: Any) -> str:
    """The file and line of a function, for messages."""
    code = getattr(written_function(function) if callable(function) else None, "__code__", None)
    return "" if code is None else f" ({code.co_filename}:{code.co_firstlineno})"


def checked_injection(
    function: Any, allowed: tuple[str, ...], whose: str, problems: list[str], *, may_yield: bool = False
) -> Injection | None:
    try:
        found = injection(function, allowed)
        if not may_yield:
            refuse_generator(function)
        return found
    except ValueError as error:
        problems.append(f"{whose}: {error}")
        return None


def checked_config(
    options: Mapping[str, Any], problems: list[str], not_known: tuple[str, ...] = ()
) -> StepConfig | None:
    known = [key for key in OPTIONS if key not in not_known]
    for key in options:
        if key not in known:
            problems.append(f"unknown option {key!r}{_did_you_mean(key, known)}; known are {', '.join(known)}")
    values = {key: seconds(value) if key in _DURATIONS else value for key, value in options.items()}
    problems += [f"option {key}: {shown(options[key])} is longer than a hundred years" for key in _too_long(values)]
    values = {key: value for key, value in values.items() if key in StepConfig.model_fields}
    if "max_retries" in options:
        if "max_attempts" in options:
            problems.append("max_attempts and max_retries say the same thing (attempts = retries + 1): give one")
        values["max_attempts"] = _one_more(options["max_retries"], problems)
    try:
        config = StepConfig(**values)
    except ValidationError as error:
        problems += [f"option {'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors()]
        return None
    if config.on_timeout == "retry" and (config.max_attempts or 1) == 1:
        problems.append('on_timeout="retry" needs more than one attempt: give max_attempts=2 or more')
    if config.deadline is not None and not config.is_external:
        problems.append('deadline is for execution_mode="external"; use timeout for other steps')
    return config


def _too_long(values: Mapping[str, Any]) -> list[str]:
    """Databases cannot store the end of such a duration."""
    numbers = {key: values[key] for key in _DURATIONS if isinstance(values.get(key), int | float)}
    return [key for key, value in numbers.items() if MAX_SECONDS < value < float("inf")]


def _did_you_mean(key: str, known: list[str]) -> str:
    close = get_close_matches(key, known, 1)
    return f" (did you mean {close[0]!r}?)" if close else ""


def _one_more(retries: Any, problems: list[str]) -> int | None:
    if isinstance(retries, int) and retries >= 0:
        return retries + 1
    problems.append(f"option max_retries: give a whole number from 0 on, not {retries!r}")
    return None


def seconds(value: Any) -> Any:
    return value.total_seconds() if isinstance(value, dt.timedelta) else value
