"""The process of one system under test: it prepares its system, then measures what the harness asks for, line by line.

The harness writes the name of a discipline, the driver answers with measurements and a line that ends the answer. So
the harness can alternate between systems: a slow minute of the machine affects all of them.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from benchmarks.loads import Load, load_named

#: One repetition of a discipline; it emits its measurements.
Repetition = Callable[[], None]


@dataclass(frozen=True)
class Surroundings:
    """The servers and the log file a driver was given, and the name its measurements have."""

    database_url: str
    broker_url: str
    log: Path
    side: str


def _leave(number: int, frame: FrameType | None) -> None:
    """SIGTERM becomes an exception, so that every `with` on the way out stops its workers."""
    sys.exit(128 + number)


def answer_end(name: str) -> None:
    """Report to the harness that nothing more follows."""
    print(json.dumps({"end": name}), flush=True)


def serve(prepare: Callable[[Load, Surroundings, ExitStack], Mapping[str, Repetition]]) -> None:
    """Run as `python -m benchmarks.… full|quick` by the harness, until it closes stdin."""
    parser = argparse.ArgumentParser()
    parser.add_argument("load", choices=["full", "quick"])
    load = load_named(parser.parse_args().load)
    signal.signal(signal.SIGTERM, _leave)
    surroundings = Surroundings(
        database_url=os.environ["BENCH_DATABASE_URL"],
        broker_url=os.environ["BENCH_BROKER_URL"],
        log=Path(os.environ["BENCH_LOG"]),
        side=os.environ["BENCH_SIDE"],
    )
    with ExitStack() as stack:
        repetitions = prepare(load, surroundings, stack)
        answer_end("prepared")
        for line in sys.stdin:
            repetitions[line.strip()]()
            answer_end(line.strip())
