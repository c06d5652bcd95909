"""`delay_step(minutes=5)`: a delay as a step. It is a row with a time, so it occupies no worker."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Iterator
from typing import Any, Never

from rival_workers.definition.waits import Sleep

_UNITS = {"seconds": 1.0, "minutes": 60.0, "hours": 3600.0, "days": 86_400.0}
#: Longer delays are probably mistakes, and some exceed the range of a database's timestamps.
LONGEST = 36_525 * 86_400.0


def delay_step(
    duration: float | dt.timedelta | None = None,
    *,
    seconds: float | None = None,
    minutes: float | None = None,
    hours: float | None = None,
    days: float | None = None,
    name: str | None = None,
    **unknown: Never,
) -> Sleep:
    """The next step starts this much later; the arguments are added up. The default name is like `delay_20s`."""
    given = {"seconds": seconds, "minutes": minutes, "hours": hours, "days": days}
    given = {unit: value for unit, value in given.items() if value is not None}
    problems = [*_problems(duration, given), *map(_unknown_option, unknown)]
    total = 0.0 if problems else _total(duration, given)
    if total > LONGEST:
        problems.append(f"a delay of {total:g} s is longer than a hundred years")
    return Sleep(name or f"delay_{_shown(total)}", min(total, LONGEST), tuple(problems))


def _problems(duration: Any, given: dict[str, Any]) -> Iterator[str]:
    if duration is None and not given:
        yield "a delay needs a time: delay_step(seconds=20), or minutes, hours, days, or a timedelta"
    seconds = duration.total_seconds() if isinstance(duration, dt.timedelta) else duration
    for unit, value in {"duration": 0 if seconds is None else seconds, **given}.items():
        if isinstance(value, bool) or not isinstance(value, int | float):
            yield f"option {unit}: give a number, not {value!r}"
        elif not (math.isfinite(value) and value >= 0):
            yield f"option {unit}: a delay cannot be {value!r}; give a number from 0 on"


def _unknown_option(key: str) -> str:
    return f"unknown option {key!r}: a delay has only a time and a name; it cannot be retried or compensated"


def _total(duration: float | dt.timedelta | None, given: dict[str, Any]) -> float:
    first = duration.total_seconds() if isinstance(duration, dt.timedelta) else duration or 0
    return float(first + sum(value * _UNITS[unit] for unit, value in given.items()))


def _shown(total: float) -> str:
    """20s, 5m, 2h, 3d: in the largest unit without a remainder."""
    for unit in ("days", "hours", "minutes"):
        if total and total % _UNITS[unit] == 0:
            return f"{total / _UNITS[unit]:.0f}{unit[0]}"
    return f"{total:.3f}".rstrip("0").rstrip(".") + "s"
