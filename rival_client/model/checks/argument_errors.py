"""Makes the error for a rejected argument, with a shortened form of its value."""

from __future__ import annotations

import datetime as dt
import numbers

from rival_client.errors import InvalidArgument

MAX_TEXT = 4000
_MOST_SHOWN = 60


def shown(value: object) -> str:
    """A short form for an error: of containers and objects only the type, since they may hold secrets."""
    if value is None or isinstance(value, str | bytes | numbers.Number | dt.date | dt.timedelta):
        try:
            text = repr(value[: _MOST_SHOWN + 1] if isinstance(value, str | bytes) else value)
        except Exception:  # an int of many digits, or a subclass with a repr of its own
            return f"a value of type {type(value).__name__}"
        return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}…"
    return f"a value of type {type(value).__name__}"


def invalid(argument: str, value: object, expected: str) -> InvalidArgument:
    return InvalidArgument(argument, f"{shown(value)} is not {expected}.")
