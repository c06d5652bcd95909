"""How much of everything is measured: the one place where `--quick` differs from a full run."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Load:
    """Counts of one benchmark run; a step of a load does nothing, so only the engine is measured."""

    #: How often each discipline is measured, the systems taking turns.
    repeats: int = 5
    runs: int = 1_500
    steps: int = 5
    #: Runs whose steps return 10 KB, or 100 KB (a tenth of them).
    payload_runs: int = 300
    #: Runs with and without limits: enough for seconds, as the ratio of two short loads says little.
    limited_runs: int = 4_500
    starts: int = 3_000
    bulk_starts: int = 10_000
    latency_runs: int = 50
    #: How many of a system's polling intervals are tried.
    pollings: int = 2
    #: Retries of a repetition: with all its repetitions enough for a 99th percentile.
    retries: int = 40
    takeovers: int = 3
    finished_runs: tuple[int, ...] = (0, 100_000, 1_000_000)
    #: How often all table sizes are measured, in alternation: a slow minute must not affect only one of them.
    rounds: int = 5
    #: Items of one for_each, and steps of one long run.
    items: int = 10_000
    long_run: int = 1_000
    #: Seconds of a steady load of quick steps, with and without slow ones among them, and quick runs per second.
    mixed_s: float = 20.0
    mixed_per_s: int = 200
    #: Runs that wait for events, and runs that sleep.
    waiting: int = 100_000
    sleeping: int = 1_000_000
    #: How often one flow continues as a new one.
    continuations: int = 10_000
    #: Steps of one flow.
    checkpoints: int = 1_000
    #: Seconds for which an old snapshot is kept, of a load whose workers are killed, and of each burst of starts.
    held_s: float = 600.0
    kills_s: float = 60.0
    burst_s: float = 20.0
    #: Seconds of a rate: "90 % of 3,000 starts a minute" is what a minute shows, and not its first seconds.
    paced_s: float = 60.0
    #: No answer of a system within this time: it has failed.
    limit_s: float = 3600.0


FULL = Load()
QUICK = Load(
    repeats=3,
    payload_runs=100,
    starts=1_000,
    bulk_starts=5_000,
    latency_runs=30,
    pollings=1,
    retries=35,
    takeovers=1,
    finished_runs=(0, 100_000),
    rounds=2,
    items=1_000,
    mixed_s=5.0,
    mixed_per_s=100,
    waiting=4_000,
    sleeping=20_000,
    continuations=300,
    checkpoints=200,
    held_s=40.0,
    kills_s=16.0,
    burst_s=4.0,
    paced_s=30.0,
    limit_s=300.0,
)


def load_named(name: str) -> Load:
    """The load that a driver was asked for on its command line."""
    return {"full": FULL, "quick": QUICK}[name]
