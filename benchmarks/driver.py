"""What every driver's `main` shares: its command line, its environment and an orderly end on SIGTERM."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from benchmarks.loads import Load, load_named


@dataclass(frozen=True)
class Surroundings:
    """The servers and the log file a driver was given."""

    database_url: str
    broker_url: str
    log: Path


def _leave(number: int, frame: FrameType | None) -> None:
    """SIGTERM becomes an exception, so that every `with` on the way out stops its workers."""
    sys.exit(128 + number)


def run_driver(measure: Callable[[Load, Surroundings], None]) -> None:
    """Run as `python -m benchmarks.… full|quick` by the harness."""
    parser = argparse.ArgumentParser()
    parser.add_argument("load", choices=["full", "quick"])
    signal.signal(signal.SIGTERM, _leave)
    surroundings = Surroundings(
        database_url=os.environ["BENCH_DATABASE_URL"],
        broker_url=os.environ["BENCH_BROKER_URL"],
        log=Path(os.environ["BENCH_LOG"]),
    )
    measure(load_named(parser.parse_args().load), surroundings)
