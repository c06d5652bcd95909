"""Callbacks for click that parse times: `90m`, an ISO time, a deadline. An ISO time without a zone is local, as the
times that commands print.
"""

from __future__ import annotations

import datetime as dt
import re

import click

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}


def since(_: click.Context, __: click.Parameter, value: str | None) -> dt.datetime | None:
    """A span like `90s`, `15m`, `2h`, `7d`, or an ISO time."""
    if value is None:
        return None
    span = re.fullmatch(r"(\d+(?:\.\d+)?)([smhdw])", value)
    try:
        if span:
            return dt.datetime.now(dt.UTC) - dt.timedelta(seconds=float(span[1]) * _UNITS[span[2]])
        return dt.datetime.fromisoformat(value).astimezone(dt.UTC)
    except (ValueError, OverflowError):
        raise click.BadParameter(f"{value!r} is not a time: give 90s, 15m, 2h, 7d or 2026-01-31T12:00.") from None


def moment(_: click.Context, __: click.Parameter, value: str | None) -> dt.datetime | None:
    """An ISO time; without a time zone it is local."""
    try:
        return None if value is None else dt.datetime.fromisoformat(value).astimezone(dt.UTC)
    except (ValueError, OverflowError):
        raise click.BadParameter(f"{value!r} is not a time: give 2026-01-31T12:00 or 2026-01-31T12:00+01:00.") from None


def deadline(context: click.Context, parameter: click.Parameter, value: str | None) -> float | dt.datetime | None:
    """Seconds, or an ISO time."""
    try:
        return None if value is None else float(value)
    except ValueError:
        return moment(context, parameter, value)
