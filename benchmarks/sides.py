"""The systems under test as the harness sees them: one driver process each, asked in turns."""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.fleet import start_process, stop_process
from benchmarks.lines import Measurement, parse, progress

DRIVER_GRACE_S = 25.0


class SideFailed(RuntimeError):
    """A driver ended, or took too long."""


@dataclass(frozen=True)
class Program:
    """How to start a driver."""

    name: str
    command: Sequence[str]
    env: Mapping[str, str]
    log: Path
    directory: Path


class Side:
    """A running driver."""

    def __init__(self, program: Program, limit_s: float) -> None:
        self.name = program.name
        self._log = program.log
        self._limit_s = limit_s
        self._process = start_process(
            program.command,
            program.env,
            program.log,
            cwd=program.directory,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=2,
        )

    def prepare(self) -> None:
        """Wait until its system is up and warm."""
        self._answer("prepared")

    def ask(self, discipline: str) -> list[Measurement]:
        """One repetition of a discipline."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(f"{discipline}\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise self._failure(discipline) from None
        return self._answer(discipline)

    def stop(self) -> None:
        """Stop the driver and all that it has started."""
        stop_process(self._process, DRIVER_GRACE_S)

    def _answer(self, discipline: str) -> list[Measurement]:
        alarm = threading.Timer(self._limit_s, self.stop)
        alarm.start()
        try:
            return self._lines(discipline)
        finally:
            alarm.cancel()

    def _lines(self, discipline: str) -> list[Measurement]:
        assert self._process.stdout is not None
        found = []
        for line in self._process.stdout:
            if not line.startswith("{"):
                continue
            if "end" in json.loads(line):
                return found
            found.append(parse(line))
        raise self._failure(discipline)

    def _failure(self, discipline: str) -> SideFailed:
        return SideFailed(f"{self.name} failed in {discipline} (limit {self._limit_s:.0f} s), see {self._log}")


def alternate(sides: Sequence[Side], discipline: str, repeats: int) -> Iterable[Measurement]:
    """Each side once per round; each round begins with another side, so that no side always comes first."""
    for number in range(repeats):
        first = number % len(sides)
        for side in [*sides[first:], *sides[:first]]:
            progress("bench", f"{discipline}, round {number + 1} of {repeats}: {side.name}")
            yield from side.ask(discipline)
