"""How much the tests try. `make test` tries little; `make test-all` also runs what is marked `long`, and lets the
randomised tests try four times as much (RIVAL_EFFORT).
"""

from __future__ import annotations

import os
from typing import Any

import pytest

EFFORT = float(os.environ.get("RIVAL_EFFORT", "1"))


def examples(usual: int) -> int:
    return max(1, round(usual * EFFORT))


def long_but_first(*values: Any) -> list[Any]:
    """Parameters of a test that takes long: `make test` tries the first, `make test-all` each."""
    first, *others = values
    return [first, *(pytest.param(*_parts(value), marks=pytest.mark.long) for value in others)]


def _parts(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)
