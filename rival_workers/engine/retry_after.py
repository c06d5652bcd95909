"""Converts the wait that an error asks for to seconds. Pure, except that a date is compared with the clock."""

from __future__ import annotations

import datetime as dt
import math
from email.utils import parsedate_to_datetime

#: Seconds, a timedelta, a point in time, or the text of the HTTP header `Retry-After`.
RetryAfter = float | str | dt.timedelta | dt.datetime


def seconds_to_wait(given: RetryAfter | None) -> float | None:
    """None: it asks for nothing; a header can be anything. ValueError if the program has given a wrong value."""
    if isinstance(given, str):
        return _of_header(given.strip())
    if isinstance(given, dt.datetime) and given.tzinfo is not None:
        return _until(given)
    seconds = given.total_seconds() if isinstance(given, dt.timedelta) else given
    if seconds is None:
        return None
    if isinstance(seconds, int | float) and not isinstance(seconds, bool) and 0 <= seconds < math.inf:
        return seconds
    kinds = "seconds from 0 on, a timedelta, a datetime with a time zone, or the text of the header Retry-After"
    raise ValueError(f"StepError retry_after is {kinds}, not {given!r}")


def _of_header(text: str) -> float | None:
    """Seconds, or a date; None if it is neither."""
    if text.isascii() and text.isdigit() and len(text) < 10:
        return float(text)
    try:
        when = parsedate_to_datetime(text)
    except ValueError:
        return None
    return _until(when if when.tzinfo else when.replace(tzinfo=dt.UTC))


def _until(when: dt.datetime) -> float:
    return max(0.0, round((when - dt.datetime.now(dt.UTC)).total_seconds(), 3))
