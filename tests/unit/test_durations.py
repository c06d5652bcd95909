"""Lengths of time in texts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rival_client.model.durations import duration_text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (0.05, "0.05 s"),
        (1.23456, "1.23 s"),
        (119.6, "120 s"),
        (120, "2 min"),
        (125.4, "2 min 5 s"),
        (3600, "1 h"),
        (3605, "1 h"),
        (3660, "1 h 1 min"),
        (10_800, "3 h"),
        (187_200, "2 d 4 h"),
        (31_536_000, "365 d"),
    ],
)
def test_a_length_of_time_is_written_in_at_most_two_units(seconds: float, text: str) -> None:
    assert duration_text(seconds) == text


@given(st.floats(min_value=0, max_value=1e9))
def test_no_length_has_an_exponent_and_none_is_empty(seconds: float) -> None:
    text = duration_text(round(seconds, 3))
    assert text.endswith((" s", " min", " h", " d"))
    assert "e+" not in text
