"""Finds the processes of servers, and ends them."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

from rival_workers.dev.waiting import wait_until


def processes_in(folder: Path, program: str) -> list[int]:
    """The processes of `program` whose working directory is `folder`, with any parent."""
    if sys.platform == "linux":
        return [pid for pid in _all_pids() if _name_of(pid) == program and _is_in(pid, folder)]
    command = ["lsof", "-t", "-a", "-c", program, "-d", "cwd", "--", str(folder)]
    try:
        output = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    except FileNotFoundError:
        return []
    return [int(line) for line in output.split()]


def family_of(pid: int) -> list[int]:
    """`pid` and its direct children: a Postgres is one parent with one level of children."""
    return [pid, *(child for child, parent in _parents() if parent == pid)]


def send(pids: Iterable[int], what: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, what)


def kill_and_wait(find: Callable[[], list[int]], timeout: float = 5.0) -> bool:
    """Kills the processes that `find` returns until it returns none."""

    def nothing_left() -> bool:
        found = find()
        send(found, signal.SIGKILL)
        return not found

    return wait_until(nothing_left, timeout)


def _all_pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _name_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def _is_in(pid: int, folder: Path) -> bool:
    # The kernel appends " (deleted)" to a directory that was removed.
    try:
        return os.readlink(f"/proc/{pid}/cwd").removesuffix(" (deleted)") == str(folder)
    except OSError:
        return False


def _parents() -> list[tuple[int, int]]:
    if sys.platform == "linux":
        return [(pid, parent) for pid in _all_pids() if (parent := _parent_of(pid)) is not None]
    output = subprocess.run(["ps", "-axo", "pid=,ppid="], capture_output=True, text=True, check=False).stdout
    return [(int(pid), int(parent)) for pid, parent in (line.split() for line in output.splitlines())]


def _parent_of(pid: int) -> int | None:
    try:
        # The name is in parentheses and may contain any character.
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except (OSError, IndexError):
        return None
