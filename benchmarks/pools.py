"""`python -m benchmarks.pools`: which numbers of processes and threads suit which steps, as the basis of the defaults.

Rival alone. Each configuration has a database and a fleet of its own; the kinds of steps take turns.
"""

from __future__ import annotations

import os
from contextlib import ExitStack, closing

from benchmarks import rival_driver, venvs
from benchmarks.disciplines import Work, open_warm, steps_per_s
from benchmarks.driver import Surroundings
from benchmarks.lines import progress
from benchmarks.loads import load_named
from benchmarks.servers import driver_env, log_of, own_stack

#: (processes, concurrency of each).
CONFIGURATIONS = ((1, 8), (1, 16), (2, 8), (2, 16), (2, 32), (4, 8))
#: Kinds of steps, and how many runs of five of them.
KINDS = {"noop": 400, "wait50": 40, "cpu5": 60, "mixed": 60}


def measure(processes: int, threads: int, databases: rival_driver.Databases, surroundings: Surroundings) -> list[float]:
    """Steps per second of each kind."""
    with ExitStack() as stack:
        workers = [[*rival_driver.WORKER, "--concurrency", str(threads)]] * processes
        system = stack.enter_context(closing(databases.open_copy("pool", workers=workers)))
        warm = open_warm(system, load_named("quick"), surroundings.log, stack, processes=processes)
        return [steps_per_s(warm, Work(kind, runs, 5)) for kind, runs in KINDS.items()]


def main() -> None:
    """Prints a table."""
    with own_stack() as stack:
        os.environ.update(driver_env(stack, "pools", venvs.ROOT))
        surroundings = Surroundings(stack.database_url, stack.broker_url, log_of("pools"), "pools")
        databases = rival_driver.Databases(surroundings)
        databases.prepare_seed()
        print("processes x threads", *KINDS, sep="\t", flush=True)
        for configuration in CONFIGURATIONS:
            rates = measure(*configuration, databases, surroundings)
            progress("pools", f"{configuration}: {rates}")
            print("{} x {}".format(*configuration), *(round(rate) for rate in rates), sep="\t", flush=True)


if __name__ == "__main__":
    main()
