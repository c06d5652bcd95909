"""A process with everything below it, also where a supervisor gave its children sessions of their own."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterable
from pathlib import Path

PROC = Path("/proc")


def tree(root: int) -> list[int]:
    """The process and its descendants, parents first."""
    children: dict[int, list[int]] = {}
    for pid, parent in _parents():
        children.setdefault(parent, []).append(pid)
    found = [root]
    for pid in found:
        found += children.get(pid, [])
    return found


def signal_all(pids: Iterable[int], number: signal.Signals) -> None:
    """A signal to each; those that are gone do not matter."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def memory_mb(roots: Iterable[int]) -> float:
    """What the processes and all below them hold of the machine's memory; Linux only, 0 elsewhere."""
    total = 0
    for pid in (pid for root in roots for pid in tree(root)):
        with contextlib.suppress(OSError):
            total += int((PROC / str(pid) / "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return total / 1e6


def cpu_s(roots: Iterable[int]) -> float:
    """Seconds of processor time that the processes and all below them have used; Linux only, 0 elsewhere."""
    ticks = 0
    for pid in (pid for root in roots for pid in tree(root)):
        with contextlib.suppress(OSError):
            after_name = (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
            ticks += int(after_name[11]) + int(after_name[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def _parents() -> list[tuple[int, int]]:
    """(pid, parent's pid) of all processes."""
    return _from_proc() if (PROC / "self" / "stat").exists() else _from_ps()


def _from_proc() -> list[tuple[int, int]]:
    found = []
    for directory in PROC.glob("[0-9]*"):
        with contextlib.suppress(OSError):
            after_name = (directory / "stat").read_text().rpartition(")")[2].split()
            found.append((int(directory.name), int(after_name[1])))
    return found


def _from_ps() -> list[tuple[int, int]]:
    printed = subprocess.run(["ps", "-A", "-o", "pid=,ppid="], check=True, capture_output=True, text=True)
    numbers = [int(word) for word in printed.stdout.split()]
    return list(zip(numbers[::2], numbers[1::2], strict=True))
