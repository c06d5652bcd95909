"""Which keywords of `ctx.step(function, …)` are the function's, and which are options of the step. Never a guess: a
keyword that could be either is refused.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rival_workers.definition.steps import name_of
from rival_workers.engine.plan import StepConfig

#: What plans know besides, so that it is refused with its own reason, and not given to the function.
_OF_PLANS = ("name", "on_error", "compensate")
OPTIONS = frozenset({*StepConfig.model_fields, *_OF_PLANS})


def split_keywords(
    function: Callable[..., Any], args: Sequence[Any], keywords: Mapping[str, Any], options: Mapping[str, Any] | None
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The options of the step, and the function's keywords. With `options` the function has all that it takes.
    ValueError when it cannot be known."""
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
    """Those that can be given by name, beside the first ones, which are given by position; and whether any name can."""
    try:
        found = list(inspect.signature(function).parameters.values())
    except (ValueError, TypeError):
        return set(), True  # a builtin that does not tell
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
