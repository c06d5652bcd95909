"""The short version of `make kills`: some kills under load, of each pool."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos.kills import ALLOWED, POOLS, kill_many
from tests.support.effort import long_but_first


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("pool", long_but_first(*POOLS))
def test_what_a_killed_worker_leaves_is_done_within_its_lease_and_five_seconds(pool: str, tmp_path: Path) -> None:
    assert max(kill_many(pool, 4, 1, tmp_path, print)) < ALLOWED
