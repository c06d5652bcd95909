"""The options of a flow's step: which keywords of `ctx.step(function, …)` are options and which are the function's, and
what `@step(…)` and `step(function, …)` add. A keyword that could be either is refused.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rival_client.model import arguments
from rival_workers.definition.steps import (
    OPTIONS,
    StepSpec,
    checked_config,
    decorator_options,
    flattened,
    location,
    name_of,
    overridden,
)
from rival_workers.engine.plan import StepConfig

#: Options of a step that is part of a plan.
NOT_IN_FLOWS = ("name", "on_error", "compensate", "deadline")


@dataclass(frozen=True)
class StepCall:
    """What `ctx.step` calls."""

    function: Callable[..., Any]
    #: The step's options, with its name if it has one, over those of `step(function, …)`, of `ctx.gather` and of
    #: `@step(…)`, in this order.
    options: Mapping[str, Any]
    keywords: Mapping[str, Any]

    @property
    def origin(self) -> str:
        """Where options come from that the call does not show, for errors."""
        is_decorated = self.options.keys() & decorator_options(self.function).keys()
        return f"@step(…) of {name_of(self.function)}{location(self.function)}: " if is_decorated else ""


def step_call(
    given: Any,
    args: Sequence[Any],
    keywords: Mapping[str, Any],
    options: Mapping[str, Any] | None,
    gathered: Mapping[str, Any],
) -> StepCall:
    """`given`: a function or `step(function, …)`. `gathered`: the options of `ctx.gather` or `ctx.first`."""
    spec = _spec(given)
    if not callable(spec.function):
        raise arguments.invalid("function", spec.function, "a function that ctx.step can call")
    if isinstance(given, StepSpec):
        options = options or {}  # so that the keywords are the function's
    chosen, its_own = split_keywords(spec.function, args, keywords, options)
    decorated = decorator_options(spec.function)
    merged = overridden(overridden(overridden(decorated, gathered), spec.options), chosen)
    # None in place of a handler means none: so a call can do without that of the decorator.
    merged = {key: value for key, value in merged.items() if value is not None or key not in NOT_IN_FLOWS}
    return StepCall(spec.function, merged, its_own)


def _spec(given: Any) -> StepSpec:
    spec = flattened(given) if isinstance(given, StepSpec) else StepSpec(given, {})
    if spec.only_in_plans:
        raise ValueError(
            f"{spec.options['name']}: a predefined step is part of a plan. Put it into a workflow of steps, and "
            "ctx.call(…) that; or give ctx.step a function."
        )
    return spec


def checked_options(options: Mapping[str, Any]) -> StepConfig:
    """ValueError when a flow's step cannot have them."""
    problems: list[str] = []
    others = {key: value for key, value in options.items() if key not in _INSTEAD}
    config = checked_config(others, problems, not_known=NOT_IN_FLOWS)
    if config is not None and config.is_external:
        problems.append(
            "a flow waits for an external system with ctx.await_event(…); an external step is part of a workflow of "
            "steps, which a flow can ctx.call(…)"
        )
    problems += [instead for key, instead in _INSTEAD.items() if key in options]
    if problems or config is None:
        raise ValueError("; ".join(problems))
    return config


_INSTEAD = {
    "compensate": "a flow undoes what it has done by itself: try: … except: ctx.step(undo, …); raise",
    "on_error": "a flow handles the failure of a step by itself: try: ctx.step(…) except StepFailed: …",
}


def split_keywords(
    function: Callable[..., Any], args: Sequence[Any], keywords: Mapping[str, Any], options: Mapping[str, Any] | None
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The options of the step, and the function's keywords. With `options`, keywords are the function's if it takes
    them. ValueError for a keyword that could be either."""
    if not keywords:
        return dict(options or {}), {}
    named, takes_any = _parameters(function, len(args))
    both = [key for key in keywords if key in OPTIONS and key in named]
    if both and options is None:
        raise ValueError(_ambiguous(function, both[0]))
    known = OPTIONS if options is None else {"name"}
    its_own = {key for key in keywords if key in named or (takes_any and key not in known)}
    others = {key: value for key, value in keywords.items() if key not in its_own}
    return {**others, **(options or {})}, {key: keywords[key] for key in keywords if key in its_own}


def _parameters(function: Callable[..., Any], given: int) -> tuple[set[str], bool]:
    """The parameters that can be given by name, without the first ones, which are given by position; and whether the
    function takes any name."""
    try:
        found = list(inspect.signature(function).parameters.values())
    except (ValueError, TypeError):
        return set(), True  # a builtin without a signature
    takes_any = any(one.kind is one.VAR_KEYWORD for one in found)
    positional = [one for one in found if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)]
    by_name = [one for one in positional[given:] if one.kind is one.POSITIONAL_OR_KEYWORD]
    return {one.name for one in [*by_name, *(one for one in found if one.kind is one.KEYWORD_ONLY)]}, takes_any


def _ambiguous(function: Callable[..., Any], key: str) -> str:
    shown = name_of(function)
    return (
        f"ctx.step({shown}, {key}=…): {key!r} is a parameter of {shown} and an option of a step. Give the option as "
        f"options={{{key!r}: …}}, and the parameter as an argument or with functools.partial({shown}, {key}=…)."
    )
