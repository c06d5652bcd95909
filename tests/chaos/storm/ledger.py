"""The ledger of side effects: one append-only file per process, outside of everything that the faults touch.

A line is written with one `write` before a step works, so a SIGKILL can neither lose nor split it. The page cache
outlives the process; only a crash of the machine would need an fsync.
"""

from __future__ import annotations

import json
import os
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

#: Where workers find the directory.
VARIABLE = "CHAOS_LEDGER"


@dataclass(frozen=True)
class Execution:
    """One call of a step's function. `step` is the row that was claimed for it: in a flow that of the flow."""

    run_id: str
    path: str
    step: str
    attempt: int
    pid: int
    at: float
    nonce: str


def record(run_id: str, path: str, step: str, attempt: int, nonce: str) -> None:
    """Called by the load's step functions, in a worker."""
    _append("effects", [run_id, path, step, attempt, os.getpid(), time.time(), nonce])


def mail(token: str, answer: Any) -> None:
    """A letter to the vendor who completes external steps."""
    _append("letters", [token, answer])


def first_time(name: str) -> bool:
    """True for the first process that asks for this name, ever: a function fails once and then never again."""
    try:
        os.close(os.open(_directory() / "once" / name, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True


def _directory() -> Path:
    return Path(os.environ[VARIABLE])


def _append(kind: str, line: list[Any]) -> None:
    file = os.open(_directory() / kind / str(os.getpid()), os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(file, (json.dumps(line) + "\n").encode())
    finally:
        os.close(file)


class Ledger:
    """The reader's side."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        for kind in ("effects", "letters", "once"):
            (directory / kind).mkdir(parents=True, exist_ok=True)
        self._read: defaultdict[Path, int] = defaultdict(int)

    def executions(self) -> list[Execution]:
        """Everything that ran, in order of time."""
        files = sorted((self.directory / "effects").iterdir())
        found = [Execution(*json.loads(line)) for file in files for line in file.read_text().splitlines()]
        return sorted(found, key=lambda one: one.at)

    def new_letters(self) -> Iterator[tuple[str, Any]]:
        """Letters that were not read before. A line that is not complete yet is left for the next time."""
        for file in sorted((self.directory / "letters").iterdir()):
            text = file.read_bytes()[self._read[file] :]
            complete = text[: text.rfind(b"\n") + 1]
            self._read[file] += len(complete)
            for line in complete.splitlines():
                token, answer = json.loads(line)
                yield token, answer
