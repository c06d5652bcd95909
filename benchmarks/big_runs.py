"""Rival alone: a run with very many items, and one with very many steps. Both must cost the same from first to last."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Sequence
from typing import Protocol

import psycopg

from benchmarks.fleet import Fleet
from benchmarks.lines import emit
from benchmarks.loads import Load
from benchmarks.process_trees import memory_mb
from benchmarks.single_runs import run_to_its_end
from rival_client import Rival

LIMIT_S = 120.0

#: When each step of a run was committed, in order.
COMMITTED = """
    SELECT extract(epoch FROM completed_at) FROM rival_steps WHERE run_id = %s AND kind = 'step' ORDER BY completed_at
"""


class Rivals(Protocol):
    """A database with Rival's tables, and a producer."""

    name: str
    url: str
    producer: Rival


def measure_items(system: Rivals, fleet: Fleet, load: Load) -> None:
    """Items per second, how the last quarter compares with the first, and what it costs in memory."""
    before = memory_mb(fleet.pids())
    times = _times(system, "items", {"key": "items", "count": load.items})
    emit(system.name, "for_each_items_per_s", [len(times) / (times[-1] - times[0])])
    emit(system.name, "for_each_last_to_first", [_last_to_first(times)])
    emit(system.name, "for_each_memory_mb", [memory_mb(fleet.pids()) - before])


def measure_steps(system: Rivals, load: Load) -> None:
    """Milliseconds between commits, in the first and in the last tenth of the steps."""
    times = _times(system, f"noop-{load.long_run}", {"key": "long"})
    tenth = load.long_run // 10
    emit(system.name, "long_run_ms_per_step/first", [_ms_per_step(times[:tenth])])
    emit(system.name, "long_run_ms_per_step/last", [_ms_per_step(times[-tenth:])])


def _times(system: Rivals, workflow: str, its_input: dict[str, object]) -> list[float]:
    run_id = run_to_its_end(system.producer, workflow, its_input, LIMIT_S)
    with psycopg.connect(system.url, autocommit=True) as connection:
        return [float(row[0]) for row in connection.execute(COMMITTED, [run_id])]


def _last_to_first(times: Sequence[float]) -> float:
    """How quick the last quarter was, compared with the first."""
    quarter = len(times) // 4
    return (times[quarter] - times[0]) / (times[-1] - times[-1 - quarter])


def _ms_per_step(times: Sequence[float]) -> float:
    return statistics.median(after - before for before, after in itertools.pairwise(times)) * 1000
