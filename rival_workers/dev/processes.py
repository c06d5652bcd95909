"""Starts servers that die with their owner, and finds processes of servers that did not."""

from __future__ import annotations

import contextlib
import ctypes
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from rival_workers.dev.waiting import wait_until

# Servers do not inherit the user's environment: PGPORT, PGDATA, TZ or LC_ALL would change their behaviour.
SERVER_ENVIRONMENT = {"PATH": os.defpath, "LC_ALL": "C", "TZ": "UTC"}
PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)


def stay_same_user() -> None:
    """The server runs as the user who starts it."""


@dataclass(frozen=True)
class Launch:
    """How to start one process that dies with this one."""

    command: Sequence[str]
    log: IO[bytes]
    cwd: Path
    become: Callable[[], None] = stay_same_user
    dying_signal: signal.Signals = signal.SIGKILL
    stdin: bytes = b""
    parent: int = field(default_factory=os.getpid)

    def in_child(self) -> None:
        # In this order: a change of user clears the death signal.
        self.become()
        if sys.platform == "linux":
            _libc.prctl(PR_SET_PDEATHSIG, int(self.dying_signal), 0, 0, 0)
            if os.getppid() != self.parent:  # it died before prctl
                os._exit(1)

    def run(self) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            self.command,
            stdin=subprocess.PIPE,
            stdout=self.log,
            stderr=self.log,
            cwd=self.cwd,
            env=SERVER_ENVIRONMENT,
            preexec_fn=self.in_child,
            start_new_session=True,  # a Ctrl-C in the terminal is for the owner
        )
        assert process.stdin is not None
        with contextlib.suppress(BrokenPipeError), process.stdin:
            process.stdin.write(self.stdin)
        if sys.platform != "linux":
            watch_parent(self.parent, process.pid)
        return process


def spawn(launch: Launch) -> subprocess.Popen[bytes]:
    return _forker().run(launch)


class _Forker:
    """One thread that forks all servers of this process and never ends before it.

    PR_SET_PDEATHSIG follows the *thread* that forked: a server started from a short-lived thread (a chaos test
    that restarts the broker) would die with that thread.
    """

    def __init__(self) -> None:
        self.pid = os.getpid()
        self._jobs: queue.SimpleQueue[tuple[Launch, Future[subprocess.Popen[bytes]]]] = queue.SimpleQueue()
        threading.Thread(target=self._work, name="rival-forker", daemon=True).start()

    def run(self, launch: Launch) -> subprocess.Popen[bytes]:
        result: Future[subprocess.Popen[bytes]] = Future()
        self._jobs.put((launch, result))
        return result.result()

    def _work(self) -> None:
        while True:
            launch, result = self._jobs.get()
            try:
                result.set_result(launch.run())
            except BaseException as error:
                result.set_exception(error)


_the_forker: _Forker | None = None
_forker_guard = threading.Lock()


def _forker() -> _Forker:
    global _the_forker
    with _forker_guard:
        if _the_forker is None or _the_forker.pid != os.getpid():  # threads do not survive a fork
            _the_forker = _Forker()
        return _the_forker


def watch_parent(parent: int, child: int) -> None:
    """For kernels without a death signal (macOS): a shell polls every half second and kills `child`."""
    script = 'while kill -0 "$1" && kill -0 "$2"; do sleep 0.5; done 2>/dev/null; kill -9 "$2" 2>/dev/null'
    shell = f"({script.replace('$1', str(parent)).replace('$2', str(child))}) &"
    subprocess.run(
        ["/bin/sh", "-c", shell],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        check=False,
    )


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
