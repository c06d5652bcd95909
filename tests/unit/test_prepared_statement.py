"""Columns of a group in the binary format of Postgres' arrays."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from rival_client.db.prepared_statement import Statement

STATEMENT = Statement.of("x", "SELECT * FROM unnest(%(texts)s::text[], %(times)s::float8[])")


def read(array: bytes) -> list[bytes | None]:
    """The elements; the header has five numbers."""
    size, at, found = struct.unpack("!i", array[12:16])[0], 20, list[bytes | None]()
    for _ in range(size):
        [length] = struct.unpack("!i", array[at : at + 4])
        found.append(None if length < 0 else array[at + 4 : at + 4 + length])
        at += 4 + max(length, 0)
    assert at == len(array)
    return found


@pytest.mark.parametrize(
    "texts",
    [["a", "a"], [None, None], ["", ""], ["", None], ["a", "b", None], ["é" * 200] * 3, ["é"], [], ("t", "t")],
    ids=str,
)
def test_equal_and_different_texts_arrive_as_they_are(texts: Any) -> None:
    for _ in range(2):  # the second time from what was kept
        [encoded, _] = STATEMENT.columns({"texts": texts, "times": [None] * len(texts)})[0]
        assert encoded is not None
        assert read(encoded) == [None if one is None else one.encode() for one in texts]


@pytest.mark.parametrize("times", [[None, None], [1.5, None], [2.0, 2.0], []], ids=str)
def test_numbers_and_nulls_arrive_as_they_are(times: Any) -> None:
    [_, encoded] = STATEMENT.columns({"texts": [None] * len(times), "times": times})[0]
    assert encoded is not None
    assert read(encoded) == [None if one is None else struct.pack("!d", one) for one in times]
