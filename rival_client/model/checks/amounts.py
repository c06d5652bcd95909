"""Checks of arguments that are numbers, lengths of time or moments. Each returns the plain value, or raises
InvalidArgument.
"""

from __future__ import annotations

import datetime as dt
import math
import numbers

from rival_client.errors import InvalidArgument
from rival_client.model.checks.argument_errors import invalid

#: A hundred years, in seconds. A time that far ahead can be stored and read on every store.
MAX_SECONDS = 100 * 365 * 86_400.0
MAX_LIMIT = 1_000_000
#: The largest values of the column types integer and bigint.
MAX_INT, MAX_BIGINT = 2**31 - 1, 2**63 - 1


def whole(argument: str, value: object, least: int = 0, most: int = MAX_INT) -> int:
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or not least <= int(value) <= most:
        raise invalid(argument, value, f"a whole number from {least:,} to {most:,}")
    return int(value)


def entry(value: object, argument: str = "if_entry") -> int | None:
    """The id of an entry of a history, or None."""
    return None if value is None else whole(argument, value, most=MAX_BIGINT)


def limit(value: object, argument: str = "limit") -> int:
    return whole(argument, value, 1, MAX_LIMIT)


def seconds(argument: str, value: object, *, least: float = 0.0, most: float = MAX_SECONDS) -> float:
    """A duration: a number of seconds, or a timedelta."""
    length = _length(value)
    if length is None or not least <= length <= most:
        allowed = f"at most {most:,.0f}" if least < 0 else f"{least:,g} to {most:,.0f}"
        raise invalid(argument, value, f"a duration: give {allowed} seconds, or a timedelta")
    return length


def rate(argument: str, value: object, what: str) -> float:
    """How many `what` per second."""
    number = None if isinstance(value, dt.timedelta) else _length(value)
    if number is None or not 0.001 <= number <= MAX_SECONDS:
        raise invalid(argument, value, f"a rate: give a number of {what} per second, of 0.001 or more")
    return number


def _length(value: object) -> float | None:
    """In seconds; None if it is not a duration. NaN is in no range."""
    if isinstance(value, dt.timedelta):
        return value.total_seconds()
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        return None
    try:
        return float(value)
    except OverflowError:
        return math.inf


def timeout(value: object, argument: str = "timeout") -> float | None:
    """How long to wait at most. None and infinity: for ever. Negative: 0."""
    length = math.inf if value is None else _length(value)
    if length is None or math.isnan(length):
        raise invalid(argument, value, "a timeout: give seconds, a timedelta, or None to wait for ever")
    return None if length > MAX_SECONDS else max(0.0, length)


def poll_interval(value: object) -> float:
    length = _length(value)
    if length is None or not 0 < length <= 86_400:
        raise invalid("poll_interval", value, "an interval: give more than 0 and at most 86,400 seconds")
    return length


def moment(argument: str, value: object) -> dt.datetime:
    """A point in time, in UTC. Without a time zone it would be another one on another machine."""
    if not isinstance(value, dt.datetime):
        raise invalid(argument, value, "a point in time: give a datetime with a time zone")
    try:
        if value.utcoffset() is None:
            raise invalid(argument, value, "a point in time: it has no time zone; give datetime(…, tzinfo=UTC)")
        return value.astimezone(dt.UTC)
    except (OverflowError, ValueError) as error:
        if isinstance(error, InvalidArgument):
            raise
        raise invalid(argument, value, "a point in time in UTC: its year must be from 1 to 9999") from None
