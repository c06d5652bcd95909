"""Limits as a user writes them: `limit(5, key="input.tenant")`, `rate(50, per=1)`, or a bare number."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import Any, get_args

from pydantic import ValidationError

from rival_client.errors import InvalidArgument
from rival_client.model.checks.argument_errors import shown
from rival_client.model.checks.arguments import MAX_NAME
from rival_client.model.limits.key_paths import problem_of_key
from rival_client.model.limits.limits import MAX_LIMIT, Limit, OnFull
from rival_client.model.limits.singletons import SUFFIX

#: Where the key is, or a function that makes it; it can have the parameters of the step's function.
Key = str | Callable[..., Any] | None
_EXPECTED = {
    "max": f"a whole number from 1 to {MAX_LIMIT:,}",
    "per": "a duration: give more than 0 seconds, or a timedelta",
    "burst": f"a whole number from 0 to {MAX_LIMIT:,}",
    "max_waiting": "a whole number from 0 on, or None",
    "on_full": " or ".join(map(repr, get_args(OnFull))),
}
#: The options of a step that are limits.
LIMITS = ("concurrency_limit", "rate_limit")


def limit(
    name: str | int,
    max: int | None = None,
    *,
    key: Key = None,
    fair: str | None = None,
    on_full: OnFull = "wait",
    max_waiting: int | None = None,
) -> Limit:
    """So many attempts at once, in the whole fleet: `limit("openai", 50)`, or without a name `limit(5)`.

    With `key="input.tenant"`: so many for each tenant; a function can make the key, too. A limit with a name is shared
    by all steps that name it.
    """
    its_name, its_max = _named(name, max)
    return checked_limit(name=its_name, max=its_max, key=key, fair=fair, on_full=on_full, max_waiting=max_waiting)


def rate(
    name: str | int,
    max: int | None = None,
    *,
    per: float | dt.timedelta,
    burst: int = 0,
    key: Key = None,
    fair: str | None = None,
    on_full: OnFull = "wait",
    max_waiting: int | None = None,
) -> Limit:
    """So many starts in any `per` seconds, in the whole fleet: `rate("openai", 50, per=1)`, or `rate(50, per=1)`.

    They are spaced evenly: `rate(10, per=60)` starts one every 6 seconds, also after a quiet time. `burst`: so many
    more may start at once after a quiet time, and in any `per` seconds. `rate(10, per=60, burst=9)` starts ten at once.
    """
    its_name, its_max = _named(name, max)
    per = per.total_seconds() if isinstance(per, dt.timedelta) else per
    common = {"key": key, "fair": fair, "on_full": on_full, "max_waiting": max_waiting}
    return checked_limit(name=its_name, max=its_max, per=per, burst=burst, **common)


def _named(name: Any, max: Any) -> tuple[Any, Any]:
    """The number alone, or a name and the number."""
    if max is None and isinstance(name, str):
        raise InvalidArgument("max", f"{name!r} is the name of a limit, and its number is missing: give {name!r}, 5")
    if isinstance(max, str) and not isinstance(name, str):
        raise InvalidArgument("name", f"the name comes before the number: give {max!r}, {name!r}")
    return (None, name) if max is None else (name, max)


def checked_limit(*, key: Any = None, **fields: Any) -> Limit:
    of = f" (limit {fields['name']!r})" if isinstance(fields.get("name"), str) else ""
    try:
        found = Limit.by(key, **fields) if callable(key) else Limit(key=key, **fields)
    except ValidationError as error:
        field, problem = _first_problem(error)
        raise InvalidArgument(field, problem + of) from None
    if problems := problems_of(found):
        field, _, problem = problems[0].partition(": ")
        raise InvalidArgument(field, problem + of)
    return found


def _first_problem(error: ValidationError) -> tuple[str, str]:
    """The field, and what is wrong with it."""
    first = error.errors()[0]
    field = ".".join(map(str, first["loc"]))
    if field not in _EXPECTED:
        return field, str(first["msg"])
    return field, f"{shown(first['input'])} is not {_EXPECTED[field]}"


def problems_of(one: Limit) -> list[str]:
    """Returns the problems of a limit that its types do not show."""
    found = [
        f"{field}: {problem}"
        for field, place in (("key", one.key), ("fair", one.fair))
        if place is not None and not (field == "key" and one.function) and (problem := problem_of_key(place))
    ]
    if one.name is not None and (not one.name.strip() or len(one.name) > MAX_NAME or "\x00" in one.name):
        found.append(f"name: {one.name!r} is not a name: give 1 to {MAX_NAME} characters")
    elif one.name is not None and one.name.endswith(SUFFIX):
        found.append(f"name: {one.name!r} is the name of the limit that singleton runs have: give another one")
    return found
