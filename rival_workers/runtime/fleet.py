"""`rival worker`: starts Celery workers as child processes, restarts those that die, and stops them together.

Several small worker processes are faster than one large pool, whose prefork parent is a bottleneck.
"""

from __future__ import annotations

import contextlib
import ctypes
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

log = logging.getLogger("rival.fleet")

#: A child that dies within this many seconds after its start is restarted with a growing pause.
_QUICK_DEATH = 5.0
_BACKOFF_MAX = 10.0
_PR_SET_PDEATHSIG = 1


@dataclass
class Child:
    index: int
    process: subprocess.Popen[bytes]
    started_at: float = field(default_factory=time.monotonic)
    quick_deaths: int = 0


def die_with_parent() -> None:
    """On Linux, the kernel sends SIGTERM to this child when its supervisor dies, also by SIGKILL."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError):
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


class Fleet:
    """`command(index)` returns the command line of child number `index`."""

    def __init__(
        self, size: int, command: Callable[[int], list[str]], grace: float, env: Mapping[str, str] | None = None
    ) -> None:
        self._size, self._command, self._grace = size, command, grace
        self._env = None if env is None else dict(env)
        self.children: dict[int, Child] = {}
        self._stopping = False

    def start(self) -> None:
        for index in range(self._size):
            self.children[index] = self._spawn(index)

    def run(self) -> int:
        """Runs until SIGTERM or SIGINT."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: self._begin_stop())
        self.start()
        while not self._stopping:
            self.revive()
            time.sleep(0.1)
        return self.stop()

    def revive(self) -> None:
        """Restart dead children."""
        for child in list(self.children.values()):
            code = child.process.poll()
            if code is None:
                continue
            quick = time.monotonic() - child.started_at < _QUICK_DEATH
            deaths = child.quick_deaths + 1 if quick else 0
            ended = "worker process %d (pid %d) ended with %s; starting another"
            log.warning(ended, child.index, child.process.pid, code)
            self._pause(min(0.2 * 2**deaths, _BACKOFF_MAX) if deaths else 0)
            if not self._stopping:
                self.children[child.index] = self._spawn(child.index, deaths)

    def stop(self) -> int:
        """Sends SIGTERM, then after the grace period SIGKILL to each process group: prefork can hang on SIGTERM."""
        self._stopping = True
        for child in self.children.values():
            _signal_process(child.process, signal.SIGTERM)
        until = time.monotonic() + self._grace + 5
        for child in self.children.values():
            try:
                child.process.wait(max(0.1, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                log.warning("worker process %d (pid %d) did not stop; killed", child.index, child.process.pid)
            _kill_group(child.process)
        return 0

    def _pause(self, seconds: float) -> None:
        """Sleeps in short slices, so that a stop signal does not wait for the backoff."""
        until = time.monotonic() + seconds
        while not self._stopping and time.monotonic() < until:
            time.sleep(0.05)

    def _begin_stop(self) -> None:
        """The first signal starts the grace period; a second signal ends it."""
        if self._stopping:
            for child in self.children.values():
                _kill_group(child.process)
        self._stopping = True

    def _spawn(self, index: int, quick_deaths: int = 0) -> Child:
        process = subprocess.Popen(
            self._command(index), start_new_session=True, env=self._env, preexec_fn=die_with_parent
        )
        return Child(index, process, quick_deaths=quick_deaths)


def _signal_process(process: subprocess.Popen[bytes], number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.send_signal(number)


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(5)
