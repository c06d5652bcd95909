"""`python -m benchmarks [--quick] [--only rival,dbos,celery] [--json PATH]`, from the repository's root.

Starts its own servers, runs one driver per system in that system's own virtual environment, one after the other,
and reports. Everything it starts is bounded in time and stopped at the end, also on Ctrl-C.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from benchmarks import databases, report, venvs
from benchmarks.fleet import start_process, stop_process, wait_until
from benchmarks.lines import Measurement, parse, progress
from benchmarks.loads import load_named
from rival_workers.dev.stack import Stack, open_stack

PLACE = venvs.ROOT / ".bench"
RESULTS = venvs.ROOT / "benchmarks" / "results" / "latest.json"
DRIVER_GRACE_S = 25.0
STOP_S = 15.0


@dataclass(frozen=True)
class Driver:
    """How a system is measured: its module, and the environment it needs (None: Rival's own)."""

    module: str
    venv: str | None
    packages: tuple[str, ...]

    def python(self) -> str:
        """The interpreter; builds the environment when needed."""
        return sys.executable if self.venv is None else venvs.peer_python(self.venv)


DRIVERS = {
    "rival": Driver("benchmarks.rival_driver", None, ("celery", "psycopg", "sqlalchemy")),
    "dbos": Driver("benchmarks.peers.dbos_peer", "dbos", ("dbos", "psycopg", "sqlalchemy")),
    "celery": Driver("benchmarks.peers.celery_peer", "celery", ("celery", "kombu", "redis")),
}


def parse_arguments(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="smaller counts, under 2 minutes once installed")
    parser.add_argument("--only", default=",".join(DRIVERS), help="some of rival,dbos,celery")
    parser.add_argument("--json", type=Path, help=f"where the figures go (default, without --only: {RESULTS})")
    chosen = parser.parse_args(arguments)
    chosen.systems = chosen.only.split(",")
    unknown = set(chosen.systems) - set(DRIVERS)
    if unknown:
        parser.error(f"no such system: {', '.join(sorted(unknown))}; there are {', '.join(DRIVERS)}")
    return chosen


def driver_env(database_url: str, broker_url: str, name: str) -> dict[str, str]:
    """The environment of a driver, with an empty file for its marks."""
    marks = PLACE / f"{name}.marks"
    log = PLACE / f"{name}.log"
    marks.unlink(missing_ok=True)
    log.unlink(missing_ok=True)
    return {
        "BENCH_DATABASE_URL": database_url,
        "BENCH_BROKER_URL": broker_url,
        "BENCH_MARKS": str(marks),
        "BENCH_LOG": str(log),
        "PYTHONPATH": str(venvs.ROOT),
    }


def run_driver(name: str, python: str, load: str, env: dict[str, str]) -> list[Measurement]:
    """One system's measurements. RuntimeError when its driver failed or took too long."""
    limit_s = load_named(load).system_limit_s
    command = [python, "-m", DRIVERS[name].module, load]
    process = start_process(command, env, Path(env["BENCH_LOG"]), stdout=subprocess.PIPE, stderr=2)
    alarm = threading.Timer(limit_s, lambda: stop_process(process, DRIVER_GRACE_S))
    alarm.start()
    try:
        assert process.stdout is not None
        found = [parse(line) for line in process.stdout if line.startswith("{")]
        if process.wait() != 0:
            raise RuntimeError(f"{name} failed ({process.returncode}; limit {limit_s:.0f} s), see {env['BENCH_LOG']}")
        return found
    finally:
        alarm.cancel()
        stop_process(process, DRIVER_GRACE_S)


@contextmanager
def own_stack() -> Iterator[Stack]:
    """Servers of this benchmark alone, with their data on the repository's disk; removed when they have stopped."""
    directory = PLACE / f"stack-{os.getpid()}"
    remove_leftovers()
    stack = open_stack(directory)
    try:
        yield stack
    finally:
        stack.close()
        with suppress(TimeoutError):
            wait_until(lambda: not any(directory.rglob("postmaster.pid")), STOP_S, "Postgres' end", pause_s=0.1)
        shutil.rmtree(directory, ignore_errors=True)


def remove_leftovers() -> None:
    """The data of benchmarks that were killed; those that still run keep theirs."""
    for directory in PLACE.glob("stack-*"):
        try:
            os.kill(int(directory.name.removeprefix("stack-")), 0)
        except ProcessLookupError:
            shutil.rmtree(directory, ignore_errors=True)


def measure(systems: Sequence[str], load: str) -> tuple[list[Measurement], dict[str, Any], list[str]]:
    """All measurements, the circumstances, and what went wrong."""
    pythons = {name: DRIVERS[name].python() for name in systems}
    measurements: list[Measurement] = []
    failures: list[str] = []
    with own_stack() as stack:
        about = circumstances(pythons, stack.database_url, load)
        for name, python in pythons.items():
            try:
                env = driver_env(stack.database_url, stack.broker_url, name)
                measurements += run_driver(name, python, load, env)
            except RuntimeError as error:
                progress(name, str(error))
                failures.append(str(error))
    return measurements, about, failures


def circumstances(pythons: dict[str, str], database_url: str, load: str) -> dict[str, Any]:
    """The conditions needed to compare the figures with others. Refuses servers without durability."""
    settings = databases.durability(database_url)
    if settings["fsync"] != "on" or settings["synchronous_commit"] != "on":
        raise RuntimeError(f"Postgres must be durable to be measured: {settings}")
    return {
        "load": load,
        "began": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "cpus": os.cpu_count(),
        "platform": platform.platform(),
        "python": platform.python_version(),
        "postgres": settings,
        "load_average_before": os.getloadavg(),
        "versions": {name: venvs.versions(python, DRIVERS[name].packages) for name, python in pythons.items()},
    }


def _leave(number: int, frame: FrameType | None) -> None:
    sys.exit(128 + number)


def main() -> int:
    """0 when every system that was asked for could be measured."""
    chosen = parse_arguments()
    signal.signal(signal.SIGTERM, _leave)
    PLACE.mkdir(exist_ok=True)
    began = time.monotonic()
    measurements, about, failures = measure(chosen.systems, "quick" if chosen.quick else "full")
    about["took_s"] = round(time.monotonic() - began)
    scores = report.by_system(measurements)
    print(report.table(scores))
    path = chosen.json or (RESULTS if set(chosen.systems) == set(DRIVERS) else None)
    if path is not None and not failures:
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
