"""`python -m benchmarks [--quick] [--only …] [--json PATH]`, from the repository's root.

Starts its own servers and one driver per system in that system's own virtual environment; the systems take turns in
each discipline. Everything it starts is bounded in time and stopped at the end, also on Ctrl-C.
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from benchmarks import machine, report, venvs
from benchmarks.catalogue import DISCIPLINES, GROUPS, ONCE_SHARED
from benchmarks.disciplines import SHARED
from benchmarks.lines import Measurement, progress
from benchmarks.loads import Load, load_named
from benchmarks.servers import driver_env, log_of, own_stack
from benchmarks.sides import Program, Side, SideFailed, alternate
from rival_workers.dev.stack import Stack

RESULTS = venvs.ROOT / "benchmarks" / "results"


@dataclass(frozen=True)
class Driver:
    """How a system is measured: its module, the environment it needs (None: Rival's own), its name in the report."""

    module: str
    venv: str | None
    packages: tuple[str, ...]
    reported: str

    def python(self) -> str:
        """The interpreter; builds the environment when needed."""
        return sys.executable if self.venv is None else venvs.peer_python(self.venv)


DRIVERS = {
    "rival": Driver("benchmarks.rival_driver", None, ("celery", "psycopg", "sqlalchemy"), "rival"),
    "dbos": Driver("benchmarks.peers.dbos_peer", "dbos", ("dbos", "psycopg", "sqlalchemy"), "dbos"),
    "celery": Driver("benchmarks.peers.celery_peer", "celery", ("celery", "kombu", "redis"), "celery_chain"),
}


@dataclass(frozen=True)
class Chosen:
    """What is measured: which systems, which disciplines, how much, and where the figures go."""

    systems: Sequence[str]
    disciplines: Sequence[str]
    load: str
    path: Path | None

    @property
    def everything(self) -> bool:
        """Worth keeping in the history of results."""
        return len(self.systems) == len(DRIVERS) and len(self.disciplines) == len(DISCIPLINES)


def parse_arguments(arguments: Sequence[str] | None = None) -> Chosen:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="smaller counts, in a few minutes once installed")
    some = f"some of {', '.join(DRIVERS)}; {', '.join([*DISCIPLINES, *GROUPS])}"
    parser.add_argument("--only", default="", help=some)
    parser.add_argument("--json", type=Path, help=f"where the figures go (default, without --only: {RESULTS})")
    given = parser.parse_args(arguments)
    names = [one for name in given.only.split(",") if name for one in GROUPS.get(name, (name,))]
    unknown = sorted(set(names) - {*DRIVERS, *DISCIPLINES})
    if unknown:
        parser.error(f"unknown: {', '.join(unknown)}; there are {', '.join([*DRIVERS, *DISCIPLINES])}")
    return Chosen(
        systems=[name for name in DRIVERS if name in names] or list(DRIVERS),
        disciplines=[name for name in DISCIPLINES if name in names] or DISCIPLINES,
        load="quick" if given.quick else "full",
        path=given.json,
    )


def systems_of(discipline: str, systems: Sequence[str]) -> list[str]:
    """Those that have it."""
    having = DRIVERS if discipline in SHARED else ONCE_SHARED.get(discipline, ("rival",))
    return [name for name in systems if name in having]


class Benchmark:
    """Drivers of several systems, asked in turns; a driver that fails is left out of what follows."""

    def __init__(self, chosen: Chosen, stack: Stack, exits: ExitStack) -> None:
        self._chosen = chosen
        self._load: Load = load_named(chosen.load)
        self.failures: list[str] = []
        self._sides = {name: self._start(name, stack, exits) for name in self._needed()}

    def measurements(self) -> Iterator[Measurement]:
        """Of all disciplines."""
        for name, side in list(self._sides.items()):
            try:
                side.prepare()
            except SideFailed as error:
                self._fail(name, error)
        for discipline in self._chosen.disciplines:
            yield from self._measure(discipline)

    def _needed(self) -> list[str]:
        asked = self._chosen.disciplines
        return [name for name in self._chosen.systems if any(systems_of(one, [name]) for one in asked)]

    def _start(self, name: str, stack: Stack, exits: ExitStack) -> Side:
        driver = DRIVERS[name]
        command = [driver.python(), "-m", driver.module, self._chosen.load]
        env = driver_env(stack, driver.reported, venvs.ROOT)
        side = Side(Program(name, command, env, log_of(driver.reported), venvs.ROOT), self._load.limit_s)
        exits.callback(side.stop)
        return side

    def _measure(self, discipline: str) -> Iterator[Measurement]:
        names = [name for name in systems_of(discipline, self._chosen.systems) if name in self._sides]
        if not names:
            return
        repeats = 1 if discipline in _MEASURED_ONCE else self._load.repeats
        try:
            yield from alternate([self._sides[name] for name in names], discipline, repeats)
        except SideFailed as error:
            failed = next(name for name in names if str(error).startswith(f"{name} "))
            self._fail(failed, error)

    def _fail(self, name: str, error: SideFailed) -> None:
        progress("bench", str(error))
        self.failures.append(str(error))
        del self._sides[name]


_MEASURED_ONCE = frozenset(DISCIPLINES[DISCIPLINES.index("commits") :])


def measure(chosen: Chosen) -> tuple[report.Scores, dict[str, Any], list[str]]:
    """The scores, the conditions, and what went wrong."""
    began = time.monotonic()
    with own_stack() as stack, ExitStack() as exits:
        about = machine.conditions(stack.database_url, chosen.load)
        about["versions"] = versions(chosen.systems)
        benchmark = Benchmark(chosen, stack, exits)
        scores = report.scores_of(benchmark.measurements())
    about["took_s"] = round(time.monotonic() - began)
    return scores, about, benchmark.failures


def versions(systems: Sequence[str]) -> Mapping[str, Mapping[str, str]]:
    """The installed packages of each system."""
    return {name: venvs.versions(DRIVERS[name].python(), DRIVERS[name].packages) for name in systems}


def _leave(number: int, frame: FrameType | None) -> None:
    sys.exit(128 + number)


def main() -> int:
    """0 when every system that was asked for could be measured."""
    chosen = parse_arguments()
    signal.signal(signal.SIGTERM, _leave)
    scores, about, failures = measure(chosen)
    print(report.table(scores, [DRIVERS[name].reported for name in chosen.systems]))
    said = machine.warning(about["busy_before"])
    if said:
        print(f"\n{said}")
    path = chosen.path or (RESULTS / f"{about['began'][:10]}-{about['commit']}-{chosen.load}.json")
    if (chosen.path or chosen.everything) and not failures:
        report.write(path, scores, about)
        print(f"\nwritten: {path} ({about['took_s']} s)")
    for failure in failures:
        print(failure, file=sys.stderr)
    return 1 if failures else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
