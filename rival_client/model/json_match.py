"""Checks whether JSON contains certain fields: `{"customer": {"id": 7}}` matches every object with such a customer,
whatever other fields it has. At the leaves, type and value must be equal; lists are compared as a whole. The same on
Postgres and SQLite.
"""

from __future__ import annotations

import decimal
from collections.abc import Iterator, Mapping
from typing import Any

from sqlalchemy import ColumnElement, Connection, and_, cast, func, literal
from sqlalchemy.dialects.postgresql import JSONB

from rival_client.model.payload import serialise


def holds(connection: Connection, column: ColumnElement[Any], wanted: Mapping[str, Any]) -> ColumnElement[bool]:
    """As a condition of a statement."""
    if connection.dialect.name != "postgresql":
        return func.rival_holds(column, serialise(dict(wanted))) == 1
    stored = cast(column, JSONB)
    # Postgres takes a list as a set of what must be in it, so that lists are compared on their own.
    lists = [stored[path] == literal(value, JSONB) for path, value in _lists(wanted)]
    return and_(stored.contains(dict(wanted)), *lists)


def _lists(wanted: Mapping[str, Any], above: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    for key, value in wanted.items():
        if isinstance(value, Mapping):
            yield from _lists(value, (*above, key))
        elif isinstance(value, list | tuple):
            yield (*above, key), list(value)


def is_contained(wanted: Any, stored: Any) -> bool:
    """The same in Python."""
    if isinstance(wanted, Mapping):
        return isinstance(stored, Mapping) and all(
            key in stored and is_contained(value, stored[key]) for key, value in wanted.items()
        )
    return same(wanted, stored)


def same(one: Any, other: Any) -> bool:
    """Equal as JSON, on both stores: the order of keys does not matter, and 1 equals 1.0."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    return same_scalar(one, other)


def contains(payload: Any, wanted: Any) -> bool:
    """The payload of an event has everything that a wait asks for, as `@>` of Postgres decides it: objects by their
    keys, and unlike above lists by their members."""
    if isinstance(wanted, dict):
        return isinstance(payload, dict) and all(
            key in payload and contains(payload[key], wanted[key]) for key in wanted
        )
    if isinstance(wanted, list):
        return isinstance(payload, list) and all(any(contains(one, each) for one in payload) for each in wanted)
    return same_scalar(payload, wanted)


def same_scalar(one: Any, other: Any) -> bool:
    """Equal as Postgres compares jsonb: 1 and 1.0 are, 1 and true are not, and 1e23 is the number that it reads as."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if {type(one), type(other)} == {int, float}:
        return _decimal(one) == _decimal(other)
    return bool(one == other)


def _decimal(number: float) -> decimal.Decimal:
    return decimal.Decimal(repr(number))
