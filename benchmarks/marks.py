"""Marks that steps leave in a file, so that the harness sees when and in which process a step's code ran.

Standard library only: the workers of all three systems import it, each in its own virtual environment.
All processes are on one machine, so their wall clocks are the same clock.
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass
from pathlib import Path

VARIABLE = "BENCH_MARKS"


@dataclass(frozen=True)
class Mark:
    """One moment in a step: what happened, for which key, where and when (seconds since the epoch)."""

    what: str
    key: str
    pid: int
    at: float


def mark(what: str, key: str) -> None:
    """Append one line; small O_APPEND writes of several processes do not mix."""
    line = json.dumps([what, key, os.getpid(), time.time()]) + "\n"
    descriptor = os.open(os.environ[VARIABLE], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(descriptor, line.encode())
    finally:
        os.close(descriptor)


def marks(what: str, prefix: str = "") -> list[Mark]:
    """All marks of one kind whose key starts with `prefix`, oldest first."""
    path = Path(os.environ[VARIABLE])
    if not path.exists():
        return []
    found = (Mark(*json.loads(line)) for line in path.read_text().splitlines())
    return [one for one in found if one.what == what and one.key.startswith(prefix)]


def seen(what: str, key: str) -> bool:
    """Has this happened before? A step asks it to behave differently the second time."""
    return any(one.key == key for one in marks(what))
