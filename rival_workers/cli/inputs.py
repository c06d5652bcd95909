"""Callbacks for click that parse arguments: JSON, `@file`, `-`, fields like `customer=7`, and times like `90m`."""

from __future__ import annotations

import datetime as dt
import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from rival_client.errors import InvalidArgument
from rival_client.model.labels import labels as checked_labels

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}


def json_input(_: click.Context, __: click.Parameter, value: str | None) -> Any:
    """JSON text, `@file` for a file's content, `-` for standard input."""
    return None if value is None else _json(_read(value))


def json_given(_: click.Context, __: click.Parameter, value: str | None) -> tuple[Any] | None:
    """The same in a tuple, so that null differs from no argument."""
    return None if value is None else (_json(_read(value)),)


def _json(text: str) -> Any:
    try:
        return _parsed(text)
    except ValueError as error:
        hint = ' Strings need double quotes: \'{"key": "value"}\'.' if "'" in text else ""
        raise click.BadParameter(f"this is not JSON: {error}.{hint}", param_hint="JSON") from None


def _parsed(text: str, **options: Any) -> Any:
    try:
        return json.loads(text, **options)
    except RecursionError:
        raise ValueError("its lists and objects are nested too deeply") from None


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


def labels(_: click.Context, __: click.Parameter, value: Sequence[str]) -> dict[str, str] | None:
    """Each as `tenant=acme`; None if there is none."""
    given = dict(one.partition("=")[::2] for one in value)
    try:
        return checked_labels("labels", given)
    except InvalidArgument as error:
        raise click.BadParameter(f"{error.problem} Give NAME=VALUE, as in tenant=acme.") from None


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


def policies(_: click.Context, __: click.Parameter, value: Sequence[str]) -> list[Any] | None:
    """Rules of a run: a matcher and options each."""
    try:
        return [json.loads(one) for one in value] or None
    except ValueError as error:
        raise click.BadParameter(f"this is not JSON: {error}") from None


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


def fields(_: click.Context, parameter: click.Parameter, given: Sequence[str]) -> dict[str, Any] | None:
    """`customer=7`, `customer.id=7`, or a JSON object; several of them together."""
    found: dict[str, Any] = {}
    for text in given:
        try:
            _join(found, _object(text) if text.lstrip().startswith("{") else _field(text))
        except ValueError as error:
            raise click.BadParameter(f"{text!r}: {error}", param=parameter) from None
    return found or None


def _object(text: str) -> dict[str, Any]:
    try:
        return dict(_parsed(text))
    except ValueError as error:
        raise ValueError(f"this is not JSON: {error}.") from None


def _field(text: str) -> dict[str, Any]:
    path, equals, value = text.partition("=")
    keys = path.split(".")
    if not equals or not all(keys):
        raise ValueError("give KEY=VALUE, like customer=7 or customer.id=7, or a JSON object.")
    found: Any = _value(value)
    for key in reversed(keys):
        found = {key: found}
    return dict(found)


def _value(text: str) -> Any:
    """JSON if it is valid JSON, else text. Invalid JSON that begins like an object, list or string is an error."""
    try:
        return _parsed(text, parse_constant=lambda name: name)
    except ValueError as error:
        if text[:1] in ("{", "[", '"'):
            raise ValueError(f"the value is not JSON: {error}.") from None
        return text


def _join(found: dict[str, Any], more: dict[str, Any]) -> None:
    for key, value in more.items():
        if isinstance(value, dict) and isinstance(found.get(key), dict):
            _join(found[key], value)
        elif key in found:
            raise ValueError(f"{key!r} is given twice.")
        else:
            found[key] = value
