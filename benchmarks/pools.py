"""`python -m benchmarks.pools`: which numbers of processes and threads suit which steps, as the basis of the defaults.

Rival alone. Each configuration has a database and a fleet of its own; they take turns.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Sequence
from contextlib import ExitStack, closing
from statistics import median

from benchmarks import rival_driver, venvs
from benchmarks.disciplines import Warm, Work, open_warm, steps_per_s
from benchmarks.driver import Surroundings
from benchmarks.lines import progress
from benchmarks.loads import load_named
from benchmarks.servers import driver_env, log_of, own_stack

#: (processes, concurrency of each).
CONFIGURATIONS = ((1, 8), (1, 16), (2, 8), (2, 16), (2, 32), (4, 8))
ROUNDS = 3
#: Kinds of steps, and how many runs of five of them.
KINDS = {"noop": 400, "wait50": 40, "cpu5": 60, "mixed": 60}


def open_configuration(
    processes: int, threads: int, databases: rival_driver.Databases, surroundings: Surroundings, stack: ExitStack
) -> Warm:
    """A warm fleet, held until it is measured."""
    workers = [[*rival_driver.WORKER, "--concurrency", str(threads)]] * processes
    name = f"pool_{processes}_{threads}"
    system = stack.enter_context(closing(databases.open_copy(name, workers=workers)))
    return open_warm(system, load_named("quick"), surroundings.log, stack, name, processes)


def measure(fleets: Sequence[Warm], rounds: int) -> dict[tuple[str, str], list[float]]:
    """Steps per second by configuration and kind. The configurations take turns, and each round begins with another."""
    rates: dict[tuple[str, str], list[float]] = defaultdict(list)
    for number in range(rounds):
        for kind, runs in KINDS.items():
            for warm in (*fleets[number:], *fleets[:number]):
                rates[warm.configuration, kind].append(steps_per_s(warm, Work(kind, runs, 5)))
        progress("pools", f"round {number + 1} of {rounds}")
    return rates


def main() -> None:
    """Prints a table of medians, with the lowest and the highest."""
    with own_stack() as servers, ExitStack() as stack:
        os.environ.update(driver_env(servers, "pools", venvs.ROOT))
        surroundings = Surroundings(servers.database_url, servers.broker_url, log_of("pools"), "pools")
        databases = rival_driver.Databases(surroundings)
        databases.prepare_seed()
        fleets = [open_configuration(*one, databases, surroundings, stack) for one in CONFIGURATIONS]
        rates = measure(fleets, ROUNDS)
    print("processes x threads", *KINDS, sep="\t")
    for (processes, threads), warm in zip(CONFIGURATIONS, fleets, strict=True):
        found = [rates[warm.configuration, kind] for kind in KINDS]
        cells = [f"{median(one):,.0f} ({min(one):,.0f} to {max(one):,.0f})" for one in found]
        print(f"{processes} x {threads}", *cells, sep="\t")


if __name__ == "__main__":
    main()
