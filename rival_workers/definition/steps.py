"""One step as a user writes it: a function, or a function with options."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, Never, Unpack, overload

from typing_extensions import ParamSpec, TypeVar

from rival_workers.definition.options import StepOptions

Function = Callable[..., Any]
F = TypeVar("F", bound=Function)
P = ParamSpec("P", default=...)
Q = ParamSpec("Q")
T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True, default=Any)
#: Where a decorated function keeps the options of its step.
OPTIONS_ATTRIBUTE = "__rival_step__"


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
        setattr(decorated, OPTIONS_ATTRIBUTE, options)
        return decorated

    return decorate
