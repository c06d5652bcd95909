"""Callbacks for click that parse fields like `customer=7`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from rival_client.errors import InvalidArgument
from rival_client.model.starts.labels import labels as checked_labels
from rival_workers.cli.options.inputs import parsed_json


def labels(_: click.Context, __: click.Parameter, value: Sequence[str]) -> dict[str, str] | None:
    """Each as `tenant=acme`; None if there is none."""
    given = dict(one.partition("=")[::2] for one in value)
    try:
        return checked_labels("labels", given)
    except InvalidArgument as error:
        raise click.BadParameter(f"{error.problem} Give NAME=VALUE, as in tenant=acme.") from None


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
        return dict(parsed_json(text))
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
        return parsed_json(text, parse_constant=lambda name: name)
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
