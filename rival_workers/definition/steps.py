"""One step as a user writes it: a function, or a function with options."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Generic, Never, Unpack, overload

from typing_extensions import ParamSpec, TypeVar

from rival_client.model.arguments import MAX_NAME
from rival_client.model.option_fields import FIELDS, fields_of
from rival_client.model.policy_options import RULE_OPTIONS
from rival_client.model.policy_rules import overridden
from rival_client.model.step_config import Target
from rival_workers.definition.inject import Injection, injection, refuse_generator
from rival_workers.definition.options import StepOptions
from rival_workers.definition.returns import written_function

Function = Callable[..., Any]
F = TypeVar("F", bound=Function)
P = ParamSpec("P", default=...)
Q = ParamSpec("Q")
T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True, default=Any)

#: Options that are functions, and so part of the plan.
REACTIONS = ("on_error", "compensate")
OPTIONS = ("name", *REACTIONS, "tags", *RULE_OPTIONS)
_OPTIONS_ATTRIBUTE = "__rival_step__"


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


def name_of(function: Function) -> str:
    while isinstance(function, functools.partial):
        function = function.func
    name = getattr(function, "__name__", None) or type(function).__name__
    return str(name)


def options_for(target: Target) -> tuple[str, ...]:
    """The names of the options that a node of a plan, or a step of a flow, can have."""
    others = {"step": (), "external": (), "flow": (), "function": ("name", "compensate")}
    left_out = {*others.get(target, ("name", *REACTIONS)), *(FIELDS.keys() - fields_of(target))}
    # Whether a step is external is one of its options.
    left_out -= fields_of("external") if target == "step" else set()
    return tuple(key for key in OPTIONS if key not in left_out)


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
