"""Rival alone: what rules of the fleet cost, how long a low step waits, and starts that become one run."""

from __future__ import annotations

import itertools
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import psycopg

from benchmarks.disciplines import LIMIT_S, Warm, Work, fresh_key, steps_per_s
from benchmarks.fleet import wait_until
from benchmarks.lines import emit
from benchmarks.loads import Load
from benchmarks.marks import marks
from benchmarks.process_trees import cpu_s
from rival_workers import default

#: Until every process has seen a rule that was set or removed.
SEEN_S = 1.5
#: High runs that wait, as long as a low one does: more than the fleet can start before the next look.
BACKLOG, LOW_LIMIT_S = 1_000, 180.0
STARTS_PER_S, PRODUCERS, QUIET_S, BURSTS = 500, 8, 5.0, 2


def measure_ruled(warm: Warm, load: Load) -> None:
    """Steps per second, and processor time of the workers per step, with a rule of the fleet that changes the timeout
    of all steps and without one, in turns. A timeout itself costs a timer, so the steps have one anyway."""
    system, work = warm.system, Work("timed", load.runs, 5)
    for number in range(load.rounds * 2):
        rates, seconds = {}, {}
        for is_ruled in (number % 2 == 0, number % 2 == 1):
            rule = system.producer.set_policy(default, {"timeout": 600 + number}) if is_ruled else None
            with warm.fleet.released():
                time.sleep(SEEN_S)
            before = cpu_s(warm.fleet.pids())
            rates[is_ruled] = steps_per_s(warm, work)
            seconds[is_ruled] = cpu_s(warm.fleet.pids()) - before
            _assert_recorded(system.url, is_ruled)
            if rule is not None:
                system.producer.remove_policy(rule.id)
        emit(system.name, "ruled_ratio", [rates[True] / rates[False]])
        emit(system.name, "ruled_cpu_ratio", [seconds[True] / seconds[False]])


def _assert_recorded(url: str, is_ruled: bool) -> None:
    """The steps that were measured had the rule, or none."""
    last = (
        "SELECT policy IS NOT NULL FROM rival_steps WHERE completed_at IS NOT NULL ORDER BY completed_at DESC LIMIT 9"
    )
    with psycopg.connect(url, autocommit=True) as connection:
        assert {row[0] for row in connection.execute(last)} == {is_ruled}


def measure_low(warm: Warm, load: Load) -> None:
    """Seconds until a low step starts while more high ones wait than the fleet can start."""
    system, key, stop = warm.system, fresh_key("low"), threading.Event()
    waiting = "SELECT count(*) FROM rival_runs WHERE workflow = 'much' AND status = 'pending'"

    def feed() -> None:
        with psycopg.connect(system.url, autocommit=True) as connection:
            while not stop.is_set():
                row = connection.execute(waiting).fetchone()
                missing = BACKLOG - (row[0] if row else 0)
                if missing > 0:
                    system.producer.run_many("much", [{"key": key}] * missing, priority="high")
                time.sleep(0.3)

    with warm.fleet.released(), ThreadPoolExecutor(1) as pool:
        feeding = pool.submit(feed)
        try:
            time.sleep(2.0)
            began = time.time()
            system.producer.run("little", {"key": key}, priority="low")
            wait_until(lambda: len(marks("slot", key)) == 1, LOW_LIMIT_S, "the start of the low step")
        finally:
            stop.set()
        feeding.result(LIMIT_S)
    emit(system.name, "low_beside_high_s", [marks("slot", key)[0].at - began])


def measure_debounce(warm: Warm, load: Load) -> None:
    """Bursts of starts with one key, of eight producers: how many runs come of each, and which inputs are in none."""
    system, key = warm.system, fresh_key("edits")
    numbers, total, rates = itertools.count(), 0, []
    with warm.fleet.released(), ThreadPoolExecutor(PRODUCERS) as pool:
        for _ in range(BURSTS):
            began = time.monotonic()
            parts = [pool.submit(_start_many, warm, key, began + load.burst_s, numbers) for _ in range(PRODUCERS)]
            count = sum(part.result(LIMIT_S) for part in parts)
            rates.append(count / (time.monotonic() - began))
            total += count
            # A quiet time; the run of the burst begins in it.
            time.sleep(QUIET_S + 3)
    runs = system.producer.runs(workflow="gathered")
    inputs = [one for run in runs for one in _input_of(system.url, run.run_id)]
    emit(system.name, "debounce_starts_per_s", rates)
    emit(system.name, "debounce_runs_per_burst", [len(runs) / BURSTS])
    emit(system.name, "debounce_lost_or_twice", [float(total - len(set(inputs)) + len(inputs) - len(set(inputs)))])


def _start_many(warm: Warm, key: str, until: float, numbers: itertools.count[int]) -> int:
    """One of eight producers: how many it has started."""
    pause, count = PRODUCERS / STARTS_PER_S, 0
    due = time.monotonic()
    while due < until:
        time.sleep(max(0.0, due - time.monotonic()))
        warm.system.producer.run("gathered", next(numbers), debounce=QUIET_S, key=key, collect=True, max_wait=300)
        count, due = count + 1, max(due + pause, time.monotonic() - 1)
    return count


def _input_of(url: str, run_id: str) -> list[int]:
    with psycopg.connect(url, autocommit=True) as connection:
        row = connection.execute("SELECT input FROM rival_runs WHERE id = %s", [run_id]).fetchone()
    assert row is not None
    return list(row[0])
