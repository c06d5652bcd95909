"""Reads what a user gave as a step: its name, its options, where it is written, and the parameters of its function."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from rival_client.model.checks.arguments import MAX_NAME
from rival_client.model.policies.option_fields import FIELDS, fields_of
from rival_client.model.policies.policy_options import RULE_OPTIONS
from rival_client.model.policies.policy_rules import overridden
from rival_client.model.policies.step_config import Target
from rival_workers.definition.call_places import is_ours
from rival_workers.definition.inject import Injection, injection, refuse_generator
from rival_workers.definition.return_types import written_function
from rival_workers.definition.steps import OPTIONS_ATTRIBUTE, Function, StepSpec

#: Options that are functions, and so part of the plan.
REACTIONS = ("on_error", "compensate")
OPTIONS = ("name", *REACTIONS, "tags", *RULE_OPTIONS)


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
    options: Mapping[str, Any] = getattr(function, OPTIONS_ATTRIBUTE, {})
    return options


def keep_decorator_options(of: Any, on: Any) -> None:
    """Copies the options of `@step(…)` from a function to the object that wraps it."""
    if options := decorator_options(of):
        setattr(on, OPTIONS_ATTRIBUTE, options)


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
    """The file and line of a function, for messages; nothing for one of Rival's own, such as a predefined step."""
    code = getattr(written_function(function) if callable(function) else None, "__code__", None)
    return "" if code is None or is_ours(code.co_filename) else f" ({code.co_filename}:{code.co_firstlineno})"


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
