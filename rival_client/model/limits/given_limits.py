"""Reads the limits that an option holds: a number, a limit, several of them, or the same as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rival_client.model.limits.limit_options import checked_limit
from rival_client.model.limits.limits import MAX_LIMIT, Limit


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
        if not 1 <= value <= MAX_LIMIT:
            problems.append(f"option {option}: {_out_of_range(value)}")
            return None
        return Limit(max=value)
    if isinstance(value, Limit) and value.is_rate == wants_rate:
        return value
    if isinstance(value, Limit):
        other = "rate(…) is for rate_limit" if value.is_rate else "limit(…) is for concurrency_limit"
        problems.append(f"option {option}: {other}: give {example}")
    else:
        problems.append(f"option {option}: {value!r} is not a limit: give {example}")
    return None


def _out_of_range(value: int) -> str:
    if value < 1:
        return f"a limit of {value} lets nothing start: give 1 or more"
    return f"a limit of {value:,} is too large: give at most {MAX_LIMIT:,}, or none"


def _of_fields(option: str, fields: dict[str, Any], problems: list[str]) -> Limit | None:
    try:
        return checked_limit(**fields)
    except (TypeError, ValueError) as error:
        problems.append(f"option {option}: {error}")
        return None


def functions_of(value: Any) -> list[Limit]:
    """The limits in the value of an option whose keys are made by functions."""
    given = value if isinstance(value, Sequence) and not isinstance(value, str) else [value]
    return [one for one in given if isinstance(one, Limit) and one.function is not None]
