"""Reads the declared type of a step's result from its function or from a model."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Awaitable, Callable, Coroutine
from functools import cache
from types import SimpleNamespace
from typing import Any, get_args, get_origin, get_type_hints
from weakref import WeakKeyDictionary

from pydantic import BaseModel

from rival_workers.definition.returns import Returns


def returns_of(function: Callable[..., Any]) -> Returns | None:
    """The return annotation, if it contains a model or a dataclass; everything else is plain JSON."""
    try:
        annotation = _return_annotation(function)
        return Returns(annotation) if _has_a_model(annotation) else None
    except Exception:
        # A name that only type checkers know, or a type that pydantic cannot describe: plain JSON.
        return None


#: By the function: describing a type takes longer than most steps of a flow.
_known: WeakKeyDictionary[Any, Returns | None] = WeakKeyDictionary()


def known_returns_of(function: Callable[..., Any]) -> Returns | None:
    """The same, cached, for functions that are called often."""
    written = written_function(function)
    written = getattr(written, "__func__", written)
    if "return" not in getattr(written, "__annotations__", {}):
        return None
    if written not in _known:
        _known[written] = returns_of(function)
    return _known[written]


@cache
def returns_of_model(model: type[BaseModel]) -> Returns:
    return Returns(model)


def _return_annotation(function: Any) -> Any:
    written_by = written_function(function)
    annotation = getattr(written_by, "__annotations__", {}).get("return")
    # Alone: the type of a parameter that cannot be found must not hide this one.
    alone = SimpleNamespace(__annotations__={"return": annotation})
    found = get_type_hints(alone, globalns=getattr(written_by, "__globals__", {}), include_extras=True)["return"]
    return get_args(found)[-1] if get_origin(found) in (Awaitable, Coroutine) else found


def written_function(function: Any) -> Any:
    """The function as written: without partials, decorators and callable objects around it."""
    while isinstance(function, functools.partial):
        function = function.func
    function = inspect.unwrap(function)
    is_object = callable(function) and not hasattr(function, "__code__") and not isinstance(function, type)
    return inspect.unwrap(type(function).__call__) if is_object else function


def _has_a_model(annotation: Any) -> bool:
    if isinstance(annotation, type) and (issubclass(annotation, BaseModel) or dataclasses.is_dataclass(annotation)):
        return True
    return any(_has_a_model(part) for part in get_args(annotation))
