"""A prepared statement: its text, and its parameters in the wire format of Postgres."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, Self

import psycopg
from psycopg import pq

Value = str | int | float | None
#: A value, or a column of them.
GroupValue = Value | Sequence[str | None] | Sequence[int | None] | Sequence[float | None]
Row = tuple[str | None, ...]


@dataclass(frozen=True)
class Statement:
    """What Postgres prepares under a name; `parameters` says in which order the values go."""

    name: bytes
    sql: str
    parameters: tuple[str, ...]

    @classmethod
    def of(cls, name: str, sql: str) -> Self:
        """From SQL with %(name)s, the form that people read."""
        names = tuple(dict.fromkeys(re.findall(r"%\((\w+)\)s", sql)))
        numbered = re.sub(r"%\((\w+)\)s", lambda found: f"${names.index(found[1]) + 1}", sql)
        return cls(name.encode(), numbered, names)

    def values(self, given: Mapping[str, Value]) -> list[bytes | None]:
        return [_bytes(given[name]) for name in self.parameters]

    @cached_property
    def column_types(self) -> dict[str, str]:
        """The element type of each parameter that is an array, as its cast says."""
        found = {f"${number}": name for number, name in enumerate(self.parameters, 1)}
        return {found[number]: kind for number, kind in re.findall(r"(\$\d+)::(\w+)\[\]", self.sql)}

    @cached_property
    def _encoders(self) -> list[tuple[str, Callable[[Any], bytes | None]]]:
        types = self.column_types
        return [(name, _ARRAYS[types[name]] if name in types else _bytes) for name in self.parameters]

    @cached_property
    def _formats(self) -> list[int]:
        return [pq.Format.BINARY if name in self.column_types else pq.Format.TEXT for name in self.parameters]

    def columns(self, given: Mapping[str, GroupValue]) -> tuple[list[bytes | None], list[int]]:
        """Arrays travel in the binary format, in which nothing needs to be escaped; all else as text."""
        return [encode(given[name]) for name, encode in self._encoders], self._formats


def _bytes(value: Value) -> bytes | None:
    if value is None:
        return None
    encoded = str(value).encode()
    if b"\0" in encoded:
        # libpq reads up to the first NUL: the rest would silently be cut off.
        raise psycopg.DataError("a text holds a NUL character, which Postgres cannot store")
    return encoded


_HEADER, _LENGTH = struct.Struct("!iiIii").pack, struct.Struct("!i").pack
_INT, _FLOAT = struct.Struct("!ii").pack, struct.Struct("!id").pack
_NULL = _LENGTH(-1)
_TEXT_OID, _INT_OID, _FLOAT_OID = 25, 23, 701
#: Longer texts are encoded each time: what is kept must stay small.
_SHORT = 64


def _array(oid: int, size: int, parts: Sequence[bytes]) -> bytes:
    """The header has the dimensions, whether there can be NULLs, the element type, the size and the first index."""
    return b"".join((_HEADER(1, 1, oid, size, 1), *parts))


def _text_array(values: Sequence[str | None]) -> bytes:
    first, size = values[0] if values else None, len(values)
    # Most columns of a group have one value: a status, a kind, nothing.
    if values.count(first) == size and (first is None or len(first) < _SHORT):
        return _same_texts(first, size)
    return _texts(values)


@lru_cache(maxsize=1024)
def _same_texts(value: str | None, size: int) -> bytes:
    return _texts((value,) * size)


@lru_cache(maxsize=1024)
def _nulls(oid: int, size: int) -> bytes:
    return _array(oid, size, (_NULL,) * size)


def _texts(values: Sequence[str | None]) -> bytes:
    parts: list[bytes] = []
    for value in values:
        if value is None:
            parts.append(_NULL)
        else:
            encoded = value.encode()
            parts += (_LENGTH(len(encoded)), encoded)
    return _array(_TEXT_OID, len(values), parts)


def _int_array(values: Sequence[int | None]) -> bytes:
    return _array(_INT_OID, len(values), [_NULL if value is None else _INT(4, value) for value in values])


def _float_array(values: Sequence[float | None]) -> bytes:
    if values.count(None) == len(values):
        return _nulls(_FLOAT_OID, len(values))
    return _array(_FLOAT_OID, len(values), [_NULL if value is None else _FLOAT(8, value) for value in values])


#: By the type of the elements.
_ARRAYS: dict[str, Callable[[Any], bytes]] = {"text": _text_array, "int": _int_array, "float8": _float_array}
