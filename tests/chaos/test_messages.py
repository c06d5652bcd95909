"""Every message three times and in any order: all but one of each are stale, and stale is a no-op."""

from __future__ import annotations

import pytest

from rival_client import Rival
from rival_client.doorbell import RedisDoorbell
from tests.support.chaos import CHAIN, Ledger, assert_chain_is_right, mixed_fleet, start_many, thrice, wait_for_all
from tests.support.workers import Workers

#: The file is loaded before the worker opens its doorbell.
TRIPLED = """
from rival_client.doorbell import RedisDoorbell
from tests.support.chaos import thrice
RedisDoorbell._send = thrice(RedisDoorbell._send)
"""


@pytest.mark.slow
def test_every_message_three_times_and_shuffled_changes_nothing(
    rival: Rival, workers: Workers, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RedisDoorbell, "_send", thrice(RedisDoorbell._send))
    mixed_fleet(workers, ledger.workflow(TRIPLED + CHAIN))
    run_ids = start_many(rival, 60, seconds=0.01)
    wait_for_all(rival, run_ids)
    assert_chain_is_right(rival, run_ids, ledger)
    assert len(ledger.lines()) == 60 * 5, "nothing ran twice"
