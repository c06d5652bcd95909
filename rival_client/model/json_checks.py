"""Refuses JSON text that one of the stores cannot keep, or that would come back as another value: NUL characters, lone
surrogates, keys that collide, too many levels."""

from __future__ import annotations

import json
import re
from itertools import accumulate
from typing import Any

from rival_client.errors import InvalidPayload

#: Levels of lists and objects within one another. Python reads JSON recursively, and a worker reads it deep within its
#: own stack: what is deeper could be written and never be read.
MAX_DEPTH = 200
_STRING = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"')
_NOT_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
#: A key that Python may have written for a number, a bool or None. Within a text the quotes would be escaped.
_CONVERTED_KEY = re.compile(r'"(?:-?\d[\d.e+-]*|true|false|null)":')
_STEPS = {ord("["): 1, ord("{"): 1, ord("]"): -1, ord("}"): -1}


# "\\u0000" and lone surrogates are legal JSON text but no Postgres text; refusing them here gives both
# stores one behaviour and the user a reason instead of a database error.
def refuse_unstorable(text: str, what: str) -> None:
    if "\\u0000" in text and "\x00" in "".join(_strings(json.loads(text))):
        raise InvalidPayload(f"{what} holds a NUL character (\\u0000), which Postgres cannot store")
    try:
        _ = text.isascii() or text.encode()
    except UnicodeEncodeError:
        raise InvalidPayload(f"{what} holds a lone surrogate, which is not valid Unicode") from None


def refuse_colliding_keys(text: str, what: str) -> None:
    """`{1: "a", "1": "b"}` becomes an object with the key "1" twice, of which a reader would keep one."""
    if not _CONVERTED_KEY.search(text):
        return

    duplicates: list[str] = []

    def collect(pairs: list[tuple[str, Any]]) -> None:
        if len(dict(pairs)) < len(pairs):
            names = [name for name, _ in pairs]
            duplicates.extend(name for name in names if names.count(name) > 1)

    json.loads(text, object_pairs_hook=collect)
    if duplicates:
        raise InvalidPayload(
            f"{what} has an object with two keys that are both {json.dumps(duplicates[0])} in JSON, where numbers, "
            "bools and None become texts. Use texts as keys, each once."
        )


def refuse_deep(text: str, what: str, most: int = MAX_DEPTH) -> None:
    """InvalidPayload for JSON text with more levels."""
    if text.count("[") + text.count("{") <= most:
        return
    brackets = _STRING.sub("", text).encode().translate(None, delete=_NOT_BRACKETS)
    depth = max(accumulate(map(_STEPS.__getitem__, brackets)), default=0)
    if depth > most:
        raise InvalidPayload(
            f"{what} has {depth:,} levels of lists and objects within one another; at most {most} are taken"
        )


def _strings(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        return [s for pair in value.items() for part in pair for s in _strings(part)]
    if isinstance(value, list):
        return [s for item in value for s in _strings(item)]
    return []
