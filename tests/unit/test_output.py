"""How the acceptance tests compare output: a comparison that accepts too much would hide a defect."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.output import as_expected, is_printed, normalised, normalised_json


@pytest.mark.parametrize(
    ("shown", "printed", "matches"),
    [
        (["one", "two"], ["one", "two"], True),
        (["two", "one"], ["one", "two"], False),
        (["one"], ["one", "two"], False),
        (["one"], ["one and more"], False),
        (["one", "…", "four"], ["one", "two", "three", "four"], True),
        (["5 passed in …"], ["5 passed in 0.1s"], True),
    ],
)
def test_output_is_compared_line_by_line_and_in_order(shown: list[str], printed: list[str], matches: bool) -> None:
    assert is_printed(shown, printed) == matches


@pytest.mark.parametrize(
    ("printed", "expected"),
    [
        ("started 01a1e923431dd832fc366c14d94eab39", "started <id>"),
        ("created    2026-11-17 10:53:22", "created  <time>"),
        ("at 2026-11-17T09:53:22.717948+00:00", "at <time>"),
        ("by vm/3246d1ce/4026531836:14289:b507671dd3b5", "by <executor>"),
        ("a  completed  12 ms     1.5 s", "a  completed  <duration>  <duration>"),
        ("next attempt in 0.01 s", "next attempt in 0.01 s"),
        ("redis://127.0.0.1:40123/0 (pid 77)", "redis://127.0.0.1:<port>/0 (pid <pid>)"),
        ('  File "/tmp/here/flows.py", line 7', '  File "<folder>/flows.py", line 7'),
    ],
)
def test_what_differs_from_run_to_run_is_replaced_and_nothing_else(printed: str, expected: str) -> None:
    assert normalised(printed, Path("/tmp/here")) == expected


@pytest.mark.parametrize(
    ("expected", "found", "matches"),
    [
        ({"a": 1}, {"a": 1}, True),
        ({"a": 1}, {"a": 1, "b": 2}, False),
        ({"a": 1, "b": 2}, {"a": 1}, False),
        ({"a": ...}, {"a": {"any": "thing"}}, True),
        ({"a": ...}, {}, False),
        ([1, 2], [1], False),
        ({"a": "one … three"}, {"a": "one two three"}, True),
        ({"a": "one … three"}, {"a": "one two"}, False),
        ({"took": "<seconds>", "n": 7}, {"took": 0.25, "n": 7}, True),
        ({"took": "<seconds>"}, {"took": None}, False),
    ],
)
def test_json_is_compared_as_a_whole(expected: Any, found: Any, matches: bool) -> None:
    assert (as_expected(expected, normalised_json(found)) == expected) == matches
