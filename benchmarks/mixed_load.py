"""Rival alone: a steady load of quick runs, with and without slow steps among them, which must not delay the others."""

from __future__ import annotations

import time
from collections.abc import Sequence

import psycopg

from benchmarks.big_runs import Rivals
from benchmarks.lines import emit
from benchmarks.loads import Load
from rival_client import Rival

LIMIT_S = 120.0
#: One run in so many takes a second.
SLOW_EVERY = 100
_TICK_S = 0.05

TOOK = """
    SELECT count(*) FILTER (WHERE completed_at IS NULL),
           percentile_cont(ARRAY[0.5, 0.99]) WITHIN GROUP (ORDER BY extract(epoch FROM completed_at - created_at))
    FROM rival_runs WHERE id = ANY(%s)
"""


def measure_mixed(system: Rivals, load: Load) -> None:
    """Milliseconds from the start to the end of quick one-step runs, at the same arrivals per second."""
    for name, slow_every in (("quick_only", 0), ("with_slow", SLOW_EVERY)):
        p50, p99 = _took(system, _arrivals(system.producer, load, slow_every))
        emit(system.name, f"mixed_p50_ms/{name}", [p50 * 1000])
        emit(system.name, f"mixed_p99_ms/{name}", [p99 * 1000])


def _arrivals(producer: Rival, load: Load, slow_every: int) -> list[str]:
    """The ids of the quick runs."""
    quick: list[str] = []
    began = time.monotonic()
    started = 0
    while (passed := time.monotonic() - began) < load.mixed_s:
        due = int(passed * load.mixed_per_s) - started
        if due > 0:
            quick += [one.run_id for one in producer.run_many("noop-1", [{"key": "quick"}] * due)]
            slow = _multiples(started, started + due, slow_every)
            if slow:
                producer.run_many("second", [{"key": "slow"}] * slow)
            started += due
        time.sleep(_TICK_S)
    return quick


def _multiples(after: int, until: int, every: int) -> int:
    return until // every - after // every if every else 0


def _took(system: Rivals, run_ids: Sequence[str]) -> tuple[float, float]:
    deadline = time.monotonic() + LIMIT_S
    with psycopg.connect(system.url, autocommit=True) as connection:
        while time.monotonic() < deadline:
            row = connection.execute(TOOK, [list(run_ids)]).fetchone()
            assert row is not None
            if row[0] == 0:
                return float(row[1][0]), float(row[1][1])
            time.sleep(0.2)
    raise TimeoutError(f"{row[0]} of {len(run_ids)} quick runs are still open after {LIMIT_S:.0f} s")
