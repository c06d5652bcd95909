"""The disciplines, once for all systems: the same code holds the clock for Rival, DBOS and Celery.

A driver describes its system as a `System`; `shared_by` gives the repetitions that the harness asks for. Standard
library only, because it runs in each system's own virtual environment.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from benchmarks.driver import Repetition, Surroundings
from benchmarks.fleet import Fleet, wait_until
from benchmarks.lines import emit, progress
from benchmarks.loads import Load
from benchmarks.marks import marks

LIMIT_S = 90.0
RETRY_DELAY_S = 1.0
WARM_UP_RUNS = 40
#: The names of the disciplines that every system has, in the order in which they are measured.
SHARED = ("starts", "latency", "retries", "steps", "context_steps", "results_10_kb", "results_100_kb")
_numbers = itertools.count()


@dataclass(frozen=True)
class Done:
    """A finished run whose result the producer knows; `committed_at` looks up when its last outcome was
    committed, by the server's clock. It is called after the clock was read, so it costs the system nothing."""

    committed_at: Callable[[], float]


@dataclass(frozen=True)
class Work:
    """A batch of runs: what their steps do (`noop`, `context`, `kb10`, `kb100`), how many there are, their steps, and
    how many different keys they have."""

    kind: str
    runs: int
    steps: int
    keys: int = 1


class System(Protocol):
    """What a driver must be able to do. Workflows: noop, context, kb10, kb100 (n steps), pids, flaky, slow."""

    name: str
    #: How often `wait` may ask, where that is a setting: the best counts, per discipline.
    pollings: Sequence[float | None]
    polling: float | None

    def fleet(self) -> Sequence[Sequence[str]]:
        """Worker commands."""

    def env(self) -> Mapping[str, str]:
        """Environment of the workers."""

    def start(self, workflow: str, key: str, steps: int = 1) -> Any:
        """Start one run; returns a handle for `wait`."""

    def wait(self, handle: Any) -> Done:
        """Block as a producer would until the result is known."""

    def start_batch(self, work: Work) -> Any:
        """Start many runs, in whatever way is fastest."""

    def wait_batch(self, batch: Any) -> float:
        """Block until all are done; returns when the last one was, seconds since the epoch."""


@dataclass(frozen=True)
class Warm:
    """A system with a warm fleet that is held: nothing of it runs until it is measured."""

    system: System
    fleet: Fleet
    configuration: str = ""

    def emit(self, name: str, values: Sequence[float], configuration: str = "") -> None:
        """A measurement of this configuration."""
        chosen = ", ".join(filter(None, [self.configuration, configuration]))
        emit(self.system.name, name, values, configuration=chosen)


def fresh_key(kind: str) -> str:
    """A key that no earlier run of this driver had."""
    return f"{kind}-{next(_numbers)}-"


def open_fleet(system: System, log: Path) -> Fleet:
    """The fleet of a system, not yet started."""
    return Fleet(system.fleet(), system.env(), log)


def open_warm(
    system: System, load: Load, log: Path, stack: ExitStack, configuration: str = "", processes: int = 2
) -> Warm:
    """A fleet that has worked, and is held until it is measured."""
    fleet = stack.enter_context(open_fleet(system, log))
    progress(system.name, f"warming up {configuration}".rstrip())
    warm_up(system, fleet, load, processes)
    fleet.hold()
    return Warm(system, fleet, configuration)


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
    system.wait_batch(system.start_batch(Work("noop", WARM_UP_RUNS, load.steps)))


# -- what every system is measured in -------------------------------------------------------------------------------


def shared_by(fleets: Sequence[Warm], idle: System, load: Load) -> dict[str, Repetition]:
    """One repetition of each shared discipline; `idle` is a system without a fleet, for starts."""

    def measured(measure: Callable[[Warm], None]) -> Repetition:
        def repetition() -> None:
            for warm in fleets:
                measure(warm)

        return repetition

    def batches(name: str, work: Work) -> Repetition:
        return measured(lambda warm: warm.emit(name, [steps_per_s(warm, work)]))

    return {
        "starts": lambda: emit(idle.name, "starts_per_s", [starts_per_s(idle, load)]),
        "latency": measured(lambda warm: measure_latency(warm, load)),
        "retries": measured(lambda warm: warm.emit("retry_timer_error_ms", retry_timer_errors(warm, load))),
        "steps": batches("steps_per_s", Work("noop", load.runs, load.steps)),
        "context_steps": batches("context_steps_per_s", Work("context", load.runs, load.steps)),
        "results_10_kb": batches("kb10_steps_per_s", Work("kb10", load.payload_runs, load.steps)),
        "results_100_kb": batches("kb100_steps_per_s", Work("kb100", load.payload_runs // 10, load.steps)),
    }


def rate(count: int, work: Callable[[], object]) -> float:
    """How many per second `work` did."""
    began = time.perf_counter()
    work()
    return count / (time.perf_counter() - began)


def starts_per_s(system: System, load: Load) -> float:
    """Runs started one after the other by one producer, without a consumer."""

    def start_all(count: int) -> None:
        for _ in range(count):
            system.start("noop", fresh_key("start"), steps=load.steps)

    start_all(WARM_UP_RUNS)
    return rate(load.starts, lambda: start_all(load.starts))


def steps_per_s(warm: Warm, work: Work) -> float:
    """Everything is enqueued while the warm fleet is held; the clock runs from its release."""
    with warm.fleet.released():
        warm.system.wait_batch(warm.system.start_batch(Work(work.kind, WARM_UP_RUNS, work.steps, work.keys)))
        time.sleep(0.2)
    batch = warm.system.start_batch(work)
    released = warm.fleet.release()
    try:
        finished = warm.system.wait_batch(batch)
    finally:
        warm.fleet.hold()
    return work.runs * work.steps / (finished - released)


def measure_latency(warm: Warm, load: Load) -> None:
    """At every polling interval of the system: the one that suits it best counts."""
    with warm.fleet.released():
        for polling in warm.system.pollings[: load.pollings]:
            warm.system.polling = polling
            totals, lags = latencies(warm.system, load)
            shown = "" if polling is None else f"polling every {polling * 1000:g} ms"
            warm.emit("latency_10_steps_ms", totals, shown)
            warm.emit("wait_lag_ms", lags, shown)


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


def retry_timer_errors(warm: Warm, load: Load) -> list[float]:
    """Milliseconds between a due 1 s retry and its start; the runs begin one after the other, not together."""
    prefix = fresh_key("flaky")
    handles = []
    with warm.fleet.released():
        for index in range(load.retries):
            handles.append(warm.system.start("flaky", f"{prefix}{index}"))
            time.sleep(0.1)
        for handle in handles:
            warm.system.wait(handle)
    failed = {one.key: one.at for one in marks("flaky failed", prefix)}
    again = {one.key: one.at for one in marks("flaky again", prefix)}
    return [(again[key] - failed[key] - RETRY_DELAY_S) * 1000 for key in failed]


# -- what is measured with a fleet of its own -----------------------------------------------------------------------


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


class CountedSystem(System, Protocol):
    """A system on Postgres, whose commits can be counted."""

    url: str
    database: str
    #: Gives (open runs, epoch of the last end) for an array of ids.
    drained_query: str

    def start_batch(self, work: Work) -> list[str]:
        """Start many runs; their ids."""

    def close(self) -> None:
        """Disconnect the producer."""


def commits_per_step(system: CountedSystem, load: Load, surroundings: Surroundings) -> float:
    """Commits over the whole life of a fleet that finds a load waiting and is stopped when it is done.

    Sessions report their counts for sure only when they end, so the producer has left before and the fleet after.
    """
    from benchmarks import databases  # Celery's environment has no psycopg, and nothing to count

    batch = system.start_batch(Work("noop", load.runs, load.steps))
    system.close()
    before = databases.settled_commits(surroundings.database_url, system.database)
    with open_fleet(system, surroundings.log):
        drained = databases.wait_drained(system.url, system.drained_query, batch)
    after = databases.settled_commits(surroundings.database_url, system.database)
    return (after - before - drained.looks) / (load.runs * load.steps)


def wal_per_step(system: CountedSystem, fleet: Fleet, work: Work) -> float:
    """Bytes of write-ahead log per step, from the start of a batch to its end. Everything else must be held."""
    from benchmarks import databases

    before = databases.wal_position(system.url)
    with fleet.released():
        databases.wait_drained(system.url, system.drained_query, system.start_batch(work))
    return (databases.wal_position(system.url) - before) / (work.runs * work.steps)
