"""Starts servers that die with their owner."""

from __future__ import annotations

import contextlib
import ctypes
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

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
