"""The short version of `make chaos`: a quarter of a minute of faults per pool, each in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest

from rival_client.model.run_entries import HistoryEntry
from tests.chaos.storm.effects import Effects
from tests.chaos.storm.fleet import SHAPES
from tests.chaos.storm.ledger import Execution
from tests.support.workers import ROOT

SECONDS = float(os.environ.get("CHAOS_SECONDS", "15"))
SEED = int(os.environ.get("CHAOS_SEED", "10"))


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize("pool", SHAPES)
def test_a_storm_of_faults_loses_nothing_and_leaves_nothing_stuck_or_wrong(pool: str) -> None:
    command = [sys.executable, "-m", "tests.chaos.storm", "--pool", pool, "--seed", str(SEED)]
    command += ["--minutes", str(SECONDS / 60), "--json"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    report = json.loads(done.stdout.splitlines()[-1])
    assert report["passed"], f"{done.stdout}\n{done.stderr}"
    assert done.returncode == 0
    # A storm that breaks nothing, or during which nothing runs, could not fail.
    assert len(report["faults"]) >= 5, report["faults"]
    assert report["verdict"]["accepted"] >= 10
    assert report["verdict"]["effects"]["executions"] >= 100


START = datetime(2026, 1, 1, tzinfo=UTC)


def history(*entries: tuple[str, str | None, int]) -> list[HistoryEntry]:
    """What, path and process, a second apart."""
    return [
        HistoryEntry(START + timedelta(seconds=number), what, path, {}, f"host:{pid}:x")
        for number, (what, path, pid) in enumerate(entries)
    ]


def executed(path: str, pid: int, second: float, step: str | None = None) -> Execution:
    return Execution("r", path, step or path, 1, pid, START.timestamp() + second, "nonce")


def judged(executions: Sequence[Execution], entries: Sequence[HistoryEntry]) -> tuple[dict[str, int], int]:
    effects = Effects()
    effects.add(executions, entries)
    return dict(effects.repeated), len(effects.unexplained)


def test_an_execution_after_a_takeover_is_explained_also_when_the_first_one_comes_late() -> None:
    recorded = history(("claimed", "a", 1), ("taken_over", "a", 0), ("claimed", "a", 2), ("completed", "a", 2))
    assert judged([executed("a", 2, 2.5), executed("a", 1, 9)], recorded) == ({"its executor was lost": 1}, 0)


def test_an_execution_without_a_claim_is_not_explained() -> None:
    recorded = history(("claimed", "a", 1), ("completed", "a", 1))
    assert judged([executed("a", 1, 0.5), executed("a", 1, 0.7)], recorded) == ({}, 1)
    assert judged([executed("a", 2, 0.5)], recorded) == ({}, 1)
    assert judged([executed("a", 1, -1)], recorded) == ({}, 1)


def test_a_claim_without_a_cause_explains_nothing() -> None:
    recorded = history(("claimed", "a", 1), ("completed", "a", 1), ("claimed", "a", 2))
    assert judged([executed("a", 1, 0.5), executed("a", 2, 2.5)], recorded) == ({}, 1)


def test_a_checkpoint_may_be_repeated_after_a_loss_and_not_after_a_mere_wait() -> None:
    ran = [executed("f/x", 1, 0.5, "f"), executed("f/x", 2, 2.5, "f")]
    lost = history(("claimed", "f", 1), ("taken_over", "f", 0), ("claimed", "f", 2))
    waited = history(("claimed", "f", 1), ("suspended", "f", 1), ("claimed", "f", 2))
    retried = history(("claimed", "f", 1), ("retried", "f/x", 1), ("claimed", "f", 2))
    assert judged(ran, lost) == ({"its executor was lost": 1}, 0)
    assert judged(ran, waited) == ({}, 1)
    assert judged(ran, retried) == ({"retried after an error": 1}, 0)
