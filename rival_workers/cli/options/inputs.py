"""Callbacks for click that parse values: JSON, `@file`, `-`, and policies."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click


def json_input(_: click.Context, __: click.Parameter, value: str | None) -> Any:
    """JSON text, `@file` for a file's content, `-` for standard input."""
    return None if value is None else _json(_read(value))


def json_given(_: click.Context, __: click.Parameter, value: str | None) -> tuple[Any] | None:
    """The same in a tuple, so that null differs from no argument."""
    return None if value is None else (_json(_read(value)),)


def _json(text: str) -> Any:
    try:
        return parsed_json(text)
    except ValueError as error:
        hint = ' Strings need double quotes: \'{"key": "value"}\'.' if "'" in text else ""
        raise click.BadParameter(f"this is not JSON: {error}.{hint}", param_hint="JSON") from None


def parsed_json(text: str, **options: Any) -> Any:
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


def policies(_: click.Context, __: click.Parameter, value: Sequence[str]) -> list[Any] | None:
    """Rules of a run: a matcher and options each."""
    try:
        return [json.loads(one) for one in value] or None
    except ValueError as error:
        raise click.BadParameter(f"this is not JSON: {error}") from None
