"""Rival alone: what the checkpoints of one flow and of several flows cost, and how precisely a flow sleeps."""

from __future__ import annotations

import time

from benchmarks.lines import emit
from benchmarks.single_runs import run_to_its_end, run_together
from rival_client import Rival

LIMIT_S = 120.0
#: Flows that run at the same time.
FLOWS = 16
#: Seconds, each a little different, so that they do not all wake at once.
_NAPS = [0.5 + n * 0.07 for n in range(30)]


def measure_checkpoints(producer: Rival, count: int, side: str) -> None:
    """Of one flow, which does one step after the other, each with a commit of its own."""
    began = time.monotonic()
    run_to_its_end(producer, "checkpoints", {"count": count}, LIMIT_S)
    emit(side, "checkpoints_per_s", [count / (time.monotonic() - began)])


def measure_checkpoints_together(producer: Rival, count: int, side: str) -> None:
    """Of several flows at once: those that come while another is being committed share the next commit."""
    took = run_together(producer, "checkpoints", {"count": count}, FLOWS, LIMIT_S)
    emit(side, "checkpoints_together_per_s", [FLOWS * count / took])


def measure_naps(producer: Rival, side: str) -> None:
    """Milliseconds between the time that a flow wanted to be woken at and its next attempt's start."""
    started = producer.run_many("nap", [{"seconds": seconds} for seconds in _NAPS])
    late = []
    for run in started:
        producer.wait("nap", run.run_id, timeout=LIMIT_S)
        flow = next(step for step in producer.state(run.run_id).steps if step.path == "nap")
        assert flow.due_at is not None
        assert flow.started_at is not None
        late.append((flow.started_at - flow.due_at).total_seconds() * 1000)
    emit(side, "sleep_error_ms", late)
