"""The lines a driver writes: one JSON line per measurement on stdout, progress for people on stderr."""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass

_BEGAN = time.monotonic()


@dataclass(frozen=True)
class Measurement:
    """What one system scored in one discipline; `values` are the repetitions, empty for "no such thing".

    `configuration` names the variant of the system (its pool, its polling interval): the best one counts.
    """

    system: str
    name: str
    values: tuple[float, ...] = ()
    note: str = ""
    configuration: str = ""

    @property
    def median(self) -> float | None:
        """The figure that is reported."""
        return statistics.median(self.values) if self.values else None

    @property
    def spread(self) -> tuple[float, float] | None:
        """Smallest and largest repetition."""
        return (min(self.values), max(self.values)) if self.values else None

    @property
    def p99(self) -> float | None:
        """The 99th percentile, of a hundred repetitions or more."""
        return statistics.quantiles(self.values, n=100, method="inclusive")[98] if len(self.values) >= 100 else None


def emit(system: str, name: str, values: Sequence[float] = (), note: str = "", configuration: str = "") -> None:
    """Hand one measurement to the harness that started this driver."""
    print(json.dumps(asdict(Measurement(system, name, tuple(values), note, configuration))), flush=True)
    shown = statistics.median(values) if values else float("nan")
    progress(system, f"{name} = {shown:.4g} {configuration}".rstrip() if values else f"{name}: none ({note})")


def parse(line: str) -> Measurement:
    """The measurement in a line that `emit` wrote."""
    fields = json.loads(line)
    return Measurement(**{**fields, "values": tuple(fields["values"])})


def progress(system: str, text: str) -> None:
    """Prints what this process does now, and how long it has been running."""
    print(f"[{system} {time.monotonic() - _BEGAN:.0f} s] {text}", file=sys.stderr, flush=True)
