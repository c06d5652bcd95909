"""The declared type of a step's result: checked when the step ends, restored when another step reads it."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import json
from collections.abc import Awaitable, Callable, Coroutine
from functools import cache
from types import SimpleNamespace
from typing import Any, get_args, get_origin, get_type_hints
from weakref import WeakKeyDictionary

from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError

from rival_workers.errors import InvalidResult


class Returns:
    """A type of result. Stored fields have their own names, not aliases, as in any other payload."""

    def __init__(self, type_: Any) -> None:
        self.type = type_
        self._adapter: TypeAdapter[Any] = TypeAdapter(type_)

    def __repr__(self) -> str:
        return f"Returns({self.shown})"

    @property
    def shown(self) -> str:
        return self.type.__name__ if isinstance(self.type, type) and not get_args(self.type) else str(self.type)

    def stored(self, value: Any, where: str) -> Any:
        """The JSON value of a result; InvalidResult, with every problem, when it is not of this type."""
        try:
            fitting = self._adapter.validate_python(value, by_name=True, by_alias=True)
            # A model that was changed after it was made is not validated again: the warnings report that.
            return self._adapter.dump_python(fitting, mode="json", round_trip=True, by_alias=False, warnings="error")
        except ValidationError as error:
            raise InvalidResult(f"the result of {where} is not of type {self.shown}: {problems_of(error)}") from None
        except PydanticSerializationError as error:
            raise InvalidResult(f"the result of {where} is not of type {self.shown}: {error}") from None

    def restored(self, stored: Any, where: str) -> Any:
        what = f"the result of {where} as it was stored"
        return self._read(stored, what, "Has the type changed since? Then let it take the old form too.")

    def of_event(self, payload: Any, topic: str) -> Any:
        """The payload of a typed event."""
        what = f"the payload of event {topic!r}"
        return self._read(payload, what, "Send it as that model; or wait for the topic by its name, for any payload.")

    def _read(self, stored: Any, what: str, cure: str) -> Any:
        try:
            # As JSON: a strict model does not accept a string for a date in Python values.
            return self._adapter.validate_json(json.dumps(stored), by_name=True, by_alias=True)
        except ValidationError as error:
            raise InvalidResult(f"{what} is not of type {self.shown}: {problems_of(error)}. {cure}") from None


def problems_of(error: ValidationError) -> str:
    """Every problem with its place, without values: they may be secrets."""
    return "; ".join(_problem(one) for one in error.errors(include_url=False, include_input=False))


def _problem(error: Any) -> str:
    where = ".".join(str(part) for part in error["loc"])
    return f"{where}: {error['msg']}" if where else str(error["msg"])


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
