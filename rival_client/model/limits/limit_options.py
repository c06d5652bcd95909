"""Limits as a user writes them: `limit(5, key="input.tenant")`, `rate(50, per=1)`, or a bare number."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import Any

from pydantic import ValidationError

from rival_client.model.checks.arguments import MAX_NAME
from rival_client.model.limits.key_paths import problem_of_key
from rival_client.model.limits.limits import Limit, OnFull

#: Where the key is, or a function that makes it; it can have the parameters of the step's function.
Key = str | Callable[..., Any] | None
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

    `burst`: so many more at once after a quiet time.
    """
    its_name, its_max = _named(name, max)
    per = per.total_seconds() if isinstance(per, dt.timedelta) else per
    common = {"key": key, "fair": fair, "on_full": on_full, "max_waiting": max_waiting}
    return checked_limit(name=its_name, max=its_max, per=per, burst=burst, **common)


def _named(name: Any, max: Any) -> tuple[Any, Any]:
    """The number alone, or a name and the number."""
    if max is None and isinstance(name, str):
        raise ValueError(f"{name!r} is the name of a limit, and its number is missing: give {name!r}, 5")
    if isinstance(max, str) and not isinstance(name, str):
        raise ValueError(f"the name comes before the number: give {max!r}, {name!r}")
    return (None, name) if max is None else (name, max)


def checked_limit(*, key: Any = None, **fields: Any) -> Limit:
    try:
        found = Limit.by(key, **fields) if callable(key) else Limit(key=key, **fields)
    except ValidationError as error:
        raise ValueError("; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors())) from None
    if problems := problems_of(found):
        raise ValueError("; ".join(problems))
    return found


def problems_of(one: Limit) -> list[str]:
    """What is wrong with it beyond its types."""
    found = [
        f"{field}: {problem}"
        for field, place in (("key", one.key), ("fair", one.fair))
        if place is not None and not (field == "key" and one.function) and (problem := problem_of_key(place))
    ]
    if one.name is not None and (not one.name or len(one.name) > MAX_NAME or "\x00" in one.name):
        found.append(f"name: {one.name!r} is not a name: give 1 to {MAX_NAME} characters")
    return found
