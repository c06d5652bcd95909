"""The option `fallback` as users write it: `value(x)`, `retry_with(model="mini")`, or a function."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from rival_client.errors import InvalidPayload
from rival_client.model.checks.argument_errors import shown
from rival_client.model.payload import dump, load
from rival_client.model.policies.fallbacks import Fallback


class RetryWith:
    """One more attempt of the step, with `ctx.overrides`. A fallback function can return it, too."""

    def __init__(self, **overrides: Any) -> None:
        self.overrides = overrides

    def __repr__(self) -> str:
        return f"RetryWith({', '.join(f'{name}={value!r}' for name, value in self.overrides.items())})"

    def checked(self, where: str) -> dict[str, Any]:
        """The values as the store gives them back; InvalidPayload if they are not JSON."""
        found: dict[str, Any] = load(dump(self.overrides, what=f"the overrides of {where}"))
        return found


class Value:
    """A result that takes the place of the step's own."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __repr__(self) -> str:
        return f"value({self.value!r})"


FallbackOption = Value | RetryWith | Callable[..., Any] | None


def value(result: Any) -> Value:
    """`fallback=value({"answer": None})`: the step completes with this result instead of failing."""
    return Value(result)


def retry_with(**overrides: Any) -> RetryWith:
    """`fallback=retry_with(model="mini")`: one more attempt, in which `ctx.overrides` is {"model": "mini"}."""
    return RetryWith(**overrides)


def as_fallback(given: Any, problems: list[str]) -> Fallback | None:
    """The option as data."""
    try:
        match given:
            case None | Fallback():
                return given
            case Value():
                return Fallback(shape="value", value=load(dump(given.value, what="the value")))
            case RetryWith():
                return Fallback(shape="retry_with", overrides=given.checked("the fallback"))
            case Mapping():
                return _from_json(given, problems)
    except (InvalidPayload, ValueError) as error:
        problems.append(f"option fallback: {error}")
        return None
    if callable(given):
        return Fallback(shape="function")
    problems.append(
        f"option fallback: {shown(given)} is not a fallback: write value({_short(given)}) if the step shall have this "
        "result instead, or give retry_with(…) or a function"
    )
    return None


def _short(given: Any) -> str:
    return shown(given) if isinstance(given, int | float | str) else "…"


def _from_json(given: Mapping[str, Any], problems: list[str]) -> Fallback | None:
    """As operators write it, or as it is stored."""
    match dict(given):
        case {"value": result, **others} if not others:
            return as_fallback(Value(result), problems)
        case {"retry_with": {**overrides}, **others} if not others:
            return as_fallback(RetryWith(**{str(name): one for name, one in overrides.items()}), problems)
    try:
        return Fallback(**given)
    except (TypeError, ValueError):
        problems.append('option fallback: give {"value": 5} or {"retry_with": {"model": "mini"}}')
        return None
