"""Converts fields and times of records to the JSON of the API."""

from __future__ import annotations

import datetime as dt
from typing import Any


def moment(at: dt.datetime | None) -> str | None:
    """UTC with milliseconds."""
    if at is None:
        return None
    return at.astimezone(dt.UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def fields(record: Any, names: str) -> dict[str, Any]:
    """Attributes as they are, by their names."""
    return {name: getattr(record, name) for name in names.split()}


def moments(record: Any, names: str) -> dict[str, str | None]:
    """Attributes that are times."""
    return {name: moment(getattr(record, name)) for name in names.split()}


def milliseconds(at: dt.datetime) -> int:
    return round(at.timestamp() * 1000)


def measured(seconds: float | None) -> float | None:
    """A flow records a step that it has called together with its end: how long the call took is not known."""
    return seconds if seconds is not None and seconds > 0 else None
