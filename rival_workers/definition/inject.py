"""Decides from the signature of a user's function which values to pass to it, as pytest does for fixtures."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

STEP_NAMES = ("ctx", "input", "steps", "last_step", "state", "log", "run")
HANDLER_NAMES = (*STEP_NAMES, "error", "failed_step", "workflow_state", "run_continues")
#: A compensation can have the result of its step.
COMPENSATION_NAMES = (*HANDLER_NAMES[:-1], "result")
#: What steps of a loop and of a for_each can have in addition.
IN_LOOP = ("index",)
IN_ITEM = ("item", "index")

_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


@dataclass(frozen=True)
class Injection:
    """How to call a user's function with a context."""

    function: Callable[..., Any]
    #: Positional-only parameters; all others are given by name.
    positional: tuple[str, ...]
    keywords: tuple[str, ...]

    def call(self, context: Any) -> Any:
        args = [context if name == "ctx" else getattr(context, name) for name in self.positional]
        kwargs = {name: context if name == "ctx" else getattr(context, name) for name in self.keywords}
        return self.function(*args, **kwargs)


def injection(function: Callable[..., Any], allowed: tuple[str, ...]) -> Injection:
    """ValueError, with the parameter and what is possible, when a parameter has no value."""
    if not callable(function):
        raise ValueError(f"{function!r} is not a function")
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        parameters = []
    _refuse_unbound(parameters, function)
    bound = function.keywords if isinstance(function, functools.partial) else {}
    needed = [p for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD) and p.name not in bound]
    if _takes_the_whole_context(needed, allowed):
        return Injection(function, ("ctx",), ())
    unknown = [p.name for p in needed if p.name not in allowed and (p.default is p.empty or _stands_before(p, needed))]
    if unknown:
        raise ValueError(
            f"cannot inject parameter{'s' if len(unknown) > 1 else ''} {', '.join(map(repr, unknown))}: "
            f"a step may ask for any of {', '.join(allowed)}, or take the whole context as its only argument. "
            f"Rename it, or give it a default.{_hint(unknown)}"
        )
    wanted = [p for p in needed if p.name in allowed]
    return Injection(
        function,
        tuple(p.name for p in wanted if p.kind is p.POSITIONAL_ONLY),
        tuple(p.name for p in wanted if p.kind is not p.POSITIONAL_ONLY),
    )


def refuse_generator(function: Any) -> None:
    """A generator has no single result, as a step needs."""
    forms = (function, type(function).__call__)
    if any(inspect.isgeneratorfunction(form) or inspect.isasyncgenfunction(form) for form in forms):
        raise ValueError("is a generator, but a step has one result: return a list (items of a for_each may be one)")


def _refuse_unbound(parameters: list[inspect.Parameter], function: Any) -> None:
    if parameters and parameters[0].name in ("self", "cls"):
        whose, _, name = getattr(function, "__qualname__", "Class.method").rpartition(".")
        whose = whose.rpartition(".")[2] or "Class"
        raise ValueError(f"is a method without its object: give one of an object, {whose}(…).{name}")


def _takes_the_whole_context(needed: list[inspect.Parameter], allowed: tuple[str, ...]) -> bool:
    required = [p for p in needed if p.default is p.empty]
    return (
        len(required) == 1 and len(needed) == 1 and required[0].kind in _POSITIONAL and required[0].name not in allowed
    )


def _stands_before(parameter: inspect.Parameter, needed: list[inspect.Parameter]) -> bool:
    """A positional-only parameter cannot be left out when another comes after it."""
    positional = [p for p in needed if p.kind is p.POSITIONAL_ONLY]
    return parameter in positional[:-1]


def _hint(unknown: list[str]) -> str:
    return (
        " (item and index are for the steps of a for_each, index also for those of a loop.)"
        if (set(unknown) & set(IN_ITEM))
        else ""
    )
