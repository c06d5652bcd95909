"""The disciplines, once for all systems: the same code holds the clock for Rival, DBOS and Celery.

A driver describes its system as a `System` and calls `measure_all`. Standard library only, because it runs in
each system's own virtual environment.
"""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from benchmarks.driver import Surroundings
from benchmarks.fleet import Fleet, wait_until
from benchmarks.lines import emit, progress
from benchmarks.loads import Load
from benchmarks.marks import marks

LIMIT_S = 90.0
RETRY_DELAY_S = 1.0
WARM_UP_RUNS = 40
_numbers = itertools.count()


@dataclass(frozen=True)
class Done:
    """A finished run whose result the producer knows; `committed_at` looks up when its last outcome was
    committed, by the server's clock. It is called after the clock was read, so it costs the system nothing."""

    committed_at: Callable[[], float]


class System(Protocol):
    """What a driver must be able to do. Workflows: noop (n steps), pids, flaky, slow."""

    name: str
    #: How often `wait` may ask, where that is a setting: the best counts, per discipline.
    pollings: Sequence[float | None]
    polling: float | None

    def fleets(self) -> Mapping[str, Sequence[Sequence[str]]]:
        """Worker commands by configuration name; the best configuration counts, per discipline."""

    def env(self) -> Mapping[str, str]:
        """Environment of the workers."""

    def start(self, workflow: str, key: str, steps: int = 1) -> Any:
        """Start one run; returns a handle for `wait`."""

    def wait(self, handle: Any) -> Done:
        """Block as a producer would until the result is known."""

    def start_batch(self, count: int, steps: int) -> Any:
        """Start many no-op runs, in whatever way is fastest."""

    def wait_batch(self, batch: Any) -> float:
        """Block until all are done; returns when the last one was, seconds since the epoch."""


Results = dict[str, list[float]]


def fresh_key(kind: str) -> str:
    """A key that no earlier run of this driver had."""
    return f"{kind}-{next(_numbers)}-"


def rate(count: int, work: Callable[[], object]) -> float:
    """How many per second `work` did."""
    began = time.perf_counter()
    work()
    return count / (time.perf_counter() - began)


def starts_per_s(system: System, load: Load) -> list[float]:
    """Runs started one after the other by one producer, without a consumer."""

    def start_all(count: int) -> None:
        for _ in range(count):
            system.start("noop", fresh_key("start"), steps=load.steps)

    start_all(WARM_UP_RUNS)
    return [rate(load.starts, lambda: start_all(load.starts)) for _ in range(load.repeats)]


def open_fleet(system: System, configuration: str, log: Path) -> Fleet:
    """The fleet of a configuration, not yet started."""
    return Fleet(system.fleets()[configuration], system.env(), log)


def warm_up(system: System, fleet: Fleet, load: Load, processes: int = 2) -> None:
    """Until so many processes have been seen working, then some of the real load."""
    key = fresh_key("pids")

    def all_seen() -> bool:
        fleet.check_alive()
        if len({one.pid for one in marks("pids", key)}) >= processes:
            return True
        for handle in [system.start("pids", key) for _ in range(4)]:
            system.wait(handle)
        return False

    wait_until(all_seen, LIMIT_S, f"{processes} working processes of {system.name}")
    system.wait_batch(system.start_batch(WARM_UP_RUNS, load.steps))


def steps_per_s(system: System, fleet: Fleet, load: Load) -> float:
    """One repetition: everything is enqueued while the warm fleet is held; the clock runs from its release."""
    time.sleep(0.2)
    fleet.hold()
    batch = system.start_batch(load.runs, load.steps)
    released = fleet.release()
    finished = system.wait_batch(batch)
    return load.runs * load.steps / (finished - released)


def latencies(system: System, load: Load) -> tuple[list[float], list[float]]:
    """Milliseconds of 10-step runs on an idle system, and of the part between commit and knowing it."""
    totals, lags = [], []
    for index in range(load.latency_runs + 3):
        time.sleep(0.03)
        began = time.time()
        done = system.wait(system.start("noop", fresh_key("latency"), steps=10))
        known = time.time()
        if index >= 3:
            totals.append((known - began) * 1000)
            lags.append((known - done.committed_at()) * 1000)
    return totals, lags


def best_latencies(system: System, load: Load) -> Results:
    """Both figures at the polling interval that suits each best."""
    tried = []
    for polling in system.pollings[: load.pollings]:
        system.polling = polling
        tried.append(latencies(system, load))
    totals, lags = zip(*tried, strict=True)
    return {
        "latency_10_steps_ms": min(totals, key=statistics.median),
        "wait_lag_ms": min(lags, key=statistics.median),
    }


def retry_timer_errors(system: System, load: Load) -> list[float]:
    """Milliseconds between a due 1 s retry and its start; the runs begin one after the other, not together."""
    prefix = fresh_key("flaky")
    handles = []
    for index in range(load.retries):
        handles.append(system.start("flaky", f"{prefix}{index}"))
        time.sleep(0.1)
    for handle in handles:
        system.wait(handle)
    failed = {one.key: one.at for one in marks("flaky failed", prefix)}
    again = {one.key: one.at for one in marks("flaky again", prefix)}
    return [(again[key] - failed[key] - RETRY_DELAY_S) * 1000 for key in failed]


def takeovers(system: System, fleet: Fleet, load: Load) -> list[float]:
    """Seconds from SIGKILL of a worker in the middle of a step to the step's start in another one, which is up."""
    seconds = []
    for _ in range(load.takeovers):
        seconds.append(_one_takeover(system, fleet))
        fleet.replace_dead()
        warm_up(system, fleet, load)
    return seconds


def _one_takeover(system: System, fleet: Fleet) -> float:
    key = fresh_key("slow")
    handle = system.start("slow", key)
    wait_until(lambda: len(marks("slow", key)) == 1, LIMIT_S, "the slow step's start")
    time.sleep(0.5)
    killed = fleet.kill_owner(marks("slow", key)[0].pid)
    wait_until(lambda: len(marks("slow", key)) == 2, LIMIT_S, "the slow step's second start")
    system.wait(handle)
    return marks("slow", key)[1].at - killed


def measure_fleet(system: System, configuration: str, load: Load, log: Path) -> Results:
    """Everything that is measured with one warm fleet."""
    with open_fleet(system, configuration, log) as fleet:
        progress(system.name, f"{configuration}: warming up")
        warm_up(system, fleet, load)
        results = best_latencies(system, load)
        results["retry_timer_error_ms"] = retry_timer_errors(system, load)
        results["steps_per_s"] = []
        for repetition in range(load.repeats):
            results["steps_per_s"].append(steps_per_s(system, fleet, load))
            shown = f"{results['steps_per_s'][-1]:.0f} steps/s"
            progress(system.name, f"{configuration}: load {repetition + 1} of {load.repeats}: {shown}")
        return results


class CountedSystem(System, Protocol):
    """A system on Postgres, whose commits can be counted."""

    url: str
    database: str

    def start_batch(self, count: int, steps: int) -> list[str]:
        """Start many no-op runs; their ids."""

    def close(self) -> None:
        """Disconnect the producer."""


def commits_per_step(system: CountedSystem, query: str, load: Load, surroundings: Surroundings) -> float:
    """Commits over the whole life of a fleet that finds a load waiting and is stopped when it is done.

    Sessions report their counts for sure only when they end, so the producer has left before and the fleet after.
    """
    from benchmarks import databases  # Celery's environment has no psycopg, and nothing to count

    batch = system.start_batch(load.runs, load.steps)
    system.close()
    before = databases.settled_commits(surroundings.database_url, system.database)
    configuration = next(iter(system.fleets()))
    with open_fleet(system, configuration, surroundings.log):
        drained = databases.wait_drained(system.url, query, batch)
    after = databases.settled_commits(surroundings.database_url, system.database)
    return (after - before - drained.looks) / (load.runs * load.steps)


def emit_best(system: System, by_configuration: Mapping[str, Results]) -> None:
    """For each discipline the configuration that did best in it, named in the note when there was a choice."""
    for name, choose in BETTER.items():
        medians = {key: statistics.median(results[name]) for key, results in by_configuration.items()}
        best = choose(medians, key=medians.__getitem__)
        note = ", ".join(f"{key}: {value:.4g}" for key, value in medians.items()) if len(medians) > 1 else ""
        emit(system.name, name, by_configuration[best][name], note)


BETTER: Mapping[str, Callable[..., str]] = {
    "latency_10_steps_ms": min,
    "wait_lag_ms": min,
    "retry_timer_error_ms": min,
    "steps_per_s": max,
}


def measure_fleets(system: System, load: Load, log: Path) -> None:
    """Every configuration, and of each discipline the best."""
    results = {name: measure_fleet(system, name, load, log) for name in system.fleets()}
    emit_best(system, results)
