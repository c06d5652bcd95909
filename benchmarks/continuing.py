"""Rival alone: a flow that calls continue_as very often, under one run id. The tables must not grow.

`python -m benchmarks.continuing 100000` does it in library mode, on a SQLite file, without any server.
"""

from __future__ import annotations

import sys
import time

from sqlalchemy import func, select

from benchmarks.lines import emit, progress
from benchmarks.single_runs import run_to_its_end, run_together
from rival_client import Rival
from rival_client.db import metadata

LIMIT_S = 3_000.0
#: Flows that continue at the same time.
FLOWS = 16
#: Those whose rows are not the run's.
_OTHERS = ("rival_executors", "rival_workflows", "rival_schedules")


def measure_continuations(producer: Rival, count: int, side: str) -> None:
    """Turns per second, and the rows of all tables at the end, beside those after a few turns."""
    few, few_s = _run(producer, 10)
    many, many_s = _run(producer, count)
    progress(side, f"rows after 10 turns {few}, after {count:,} turns more: {many}; {few_s:.1f} and {many_s:.1f} s")
    emit(side, "continuations_per_s", [count / many_s])
    emit(side, "continuation_rows", [sum(many.values()) - sum(few.values())])
    took = run_together(producer, "turns", {"left": count}, FLOWS, LIMIT_S)
    emit(side, "continuations_together_per_s", [FLOWS * count / took])


def _run(producer: Rival, count: int) -> tuple[dict[str, int], float]:
    """The rows that this run alone has left, and how long it took."""
    before, began = _rows(producer), time.monotonic()
    run_to_its_end(producer, "turns", {"left": count}, LIMIT_S)
    took = time.monotonic() - began
    after = _rows(producer)
    return {name: after[name] - before[name] for name in after}, took


def _rows(producer: Rival) -> dict[str, int]:
    with producer.database.autocommit() as connection:
        return {
            table.name: connection.scalar(select(func.count()).select_from(table)) or 0
            for table in metadata.sorted_tables
            if table.name not in _OTHERS
        }


if __name__ == "__main__":
    from benchmarks import rival_workflows  # noqa: F401 - registers them
    from rival_workers import embedded

    with embedded(concurrency=1) as rival:
        measure_continuations(rival, int(sys.argv[1]), "rival")
