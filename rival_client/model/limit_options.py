"""Limits as a user writes them: `limit(5, key="input.tenant")`, `rate(50, per=1)`, or a bare number."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sequence
from typing import Any

from pydantic import ValidationError

from rival_client.model.arguments import MAX_NAME
from rival_client.model.limits import Limit, OnFull, problem_of_key

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
    return _limit(name=its_name, max=its_max, key=key, fair=fair, on_full=on_full, max_waiting=max_waiting)


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
    return _limit(name=its_name, max=its_max, per=per, burst=burst, **common)


def _named(name: Any, max: Any) -> tuple[Any, Any]:
    """The number alone, or a name and the number."""
    return (None, name) if max is None else (name, max)


def _limit(*, key: Any = None, **fields: Any) -> Limit:
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


def read_limits(option: str, value: Any, problems: list[str]) -> tuple[Limit, ...]:
    """The value of an option: a number, a limit, or a list of limits."""
    if value is None:
        return ()
    given = value if isinstance(value, Sequence) and not isinstance(value, str) else [value]
    found = [_read(option, one, problems) for one in given]
    limits = tuple(one for one in found if one is not None)
    names = [(one.name, one.key) for one in limits]
    if len(set(names)) < len(names):
        problems.append(f"option {option}: two limits have the same name and key: give each a name, limit('name', …)")
    return limits


def read_run_limits(concurrency_limit: Any, rate_limit: Any, problems: list[str]) -> tuple[Limit, ...]:
    """The limits of whole runs: a run that has not begun has no item, and always waits."""
    given = {"concurrency_limit": concurrency_limit, "rate_limit": rate_limit}
    found = tuple(limit for option, value in given.items() for limit in read_limits(option, value, problems))
    for limit in found:
        if limit.on_full != "wait" or limit.max_waiting is not None:
            problems.append("a limit of whole runs has no on_full and no max_waiting: a run waits to begin")
        if limit.function is not None:
            problems.append("a limit of whole runs cannot have a function as its key: give input.…, labels.… or run.id")
        elif any(place is not None and place.startswith("item") for place in (limit.key, limit.fair)):
            problems.append("a limit of whole runs cannot have an item as its key: give input.…, labels.… or run.id")
    return found


def _read(option: str, value: Any, problems: list[str]) -> Limit | None:
    wants_rate = option == "rate_limit"
    example = "rate(50, per=1)" if wants_rate else "5, or limit(5, key='input.tenant')"
    if isinstance(value, dict):
        value = _of_fields(option, value, problems)
        if value is None:
            return None
    if isinstance(value, int) and not isinstance(value, bool) and not wants_rate:
        if value < 1:
            problems.append(f"option {option}: a limit of {value} lets nothing start: give 1 or more")
            return None
        return Limit(max=value)
    if isinstance(value, Limit) and value.is_rate == wants_rate:
        return value
    if isinstance(value, Limit):
        other = "rate_limit" if value.is_rate else "concurrency_limit"
        problems.append(f"option {option}: {value.name or value.max!r} is for {other}: give {example}")
    else:
        problems.append(f"option {option}: {value!r} is not a limit: give {example}")
    return None


def _of_fields(option: str, fields: dict[str, Any], problems: list[str]) -> Limit | None:
    try:
        return _limit(**fields)
    except (TypeError, ValueError) as error:
        problems.append(f"option {option}: {error}")
        return None


def functions_of(value: Any) -> list[Limit]:
    """Of the value of an option, the limits whose keys functions make."""
    given = value if isinstance(value, Sequence) and not isinstance(value, str) else [value]
    return [one for one in given if isinstance(one, Limit) and one.function is not None]
