"""Keys that are read from a run by a path, such as `input.tenant`: checks of the path, and the value there. Pure."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

#: The first part of a key: where its value is.
SOURCES = ("input", "item", "labels", "run")
MAX_KEY_TEXT = 500


def problem_of_key(key: Any) -> str | None:
    """Why the text cannot be a key; None: it can."""
    if not isinstance(key, str) or not key:
        return f"give the place of a value, such as 'input.tenant', not {key!r}"
    first, *rest = key.split(".")
    if first not in SOURCES or not all(rest) or (first == "run" and rest != ["id"]):
        return f"{key!r} is not the place of a value: begin with {', '.join(SOURCES[:-1])} or give 'run.id'"
    if first in ("input", "labels") and not rest:
        return f"{key!r} is a whole {first}: give a field of it, such as '{first}.tenant'"
    return None


def value_at(place: str | None, values: Mapping[str, Any]) -> str:
    """The key that a step has: the text of the value at this place. "": there is none."""
    if place is None:
        return ""
    first, *fields = place.split(".")
    found = values.get(first)
    for field in fields:
        found = _field(found, field)
    return key_text(found)


def _field(value: Any, name: str) -> Any:
    if isinstance(value, Mapping):
        return value.get(name)
    if isinstance(value, Sequence) and not isinstance(value, str) and name.isdigit():
        return value[int(name)] if int(name) < len(value) else None
    return None


def key_text(value: Any) -> str:
    if value is None:
        return ""
    text = value if isinstance(value, str) else json.dumps(value, sort_keys=True, separators=(",", ":"))
    text = text.replace("\x00", "\\0").encode("utf-8", "replace").decode()
    return text if len(text) <= MAX_KEY_TEXT else f"{text[:MAX_KEY_TEXT]}~{zlib.crc32(text.encode()):08x}"
