"""Arguments as people type them: JSON, `@file`, `-`, and times like `90m`. Used as click's callbacks."""

from __future__ import annotations

import datetime as dt
import json
import re
import sys
from pathlib import Path
from typing import Any

import click

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}


def json_input(_: click.Context, __: click.Parameter, value: str | None) -> Any:
    """JSON text, `@file` for a file's content, `-` for standard input."""
    if value is None:
        return None
    text = _read(value)
    try:
        return json.loads(text)
    except ValueError as error:
        hint = ' Strings need double quotes: \'{"key": "value"}\'.' if "'" in text else ""
        raise click.BadParameter(f"this is not JSON: {error}.{hint}", param_hint="JSON") from None


def _read(value: str) -> str:
    if value == "-":
        return sys.stdin.read()
    if not value.startswith("@"):
        return value
    try:
        return Path(value[1:]).read_text()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise click.BadParameter(f"{value[1:]} cannot be read: {reason}.", param_hint="JSON") from None


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
        raise click.BadParameter(f"{value!r} is no time: give 90s, 15m, 2h, 7d or 2026-01-31T12:00.") from None
