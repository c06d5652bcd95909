"""Worker processes of a system under test: started together, held, released, killed, and never left behind.

A held fleet is stopped with SIGSTOP: its processes are warm and connected but take nothing, so that a whole load
can be enqueued first and the clock starts with SIGCONT. That is the same for all three systems.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType

from benchmarks.process_trees import signal_all, tree

GRACE_S = 8.0
PR_SET_PDEATHSIG = 1


def _die_with_parent() -> None:
    """Linux: no worker outlives a driver, even one that was killed with SIGKILL."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def start_process(
    command: Sequence[str], env: Mapping[str, str], log: Path, cwd: Path | None = None, **options: int
) -> subprocess.Popen[str]:
    """One process in a session of its own, with its stderr (and stdout unless piped) in a log file."""
    with log.open("a") as output:
        return subprocess.Popen(
            list(command),
            cwd=cwd,
            env={**os.environ, **env},
            stdin=options.get("stdin", subprocess.DEVNULL),
            stdout=options.get("stdout", output.fileno()),
            stderr=options.get("stderr", output.fileno()),
            text=True,
            start_new_session=True,
            preexec_fn=_die_with_parent,
        )


def stop_process(process: subprocess.Popen[str], grace_s: float = GRACE_S) -> None:
    """SIGTERM, a while, then SIGKILL for all that is left: prefork parents sometimes hang on SIGTERM."""
    pids = ask_to_stop(process)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(grace_s)
    signal_all(pids[1:], signal.SIGKILL)
    if process.poll() is None:
        process.kill()
    process.wait(grace_s)


def ask_to_stop(process: subprocess.Popen[str]) -> list[int]:
    """SIGTERM for the process itself, which sees to its children; a held tree must wake up to hear it."""
    if process.poll() is not None:
        return [process.pid]
    pids = tree(process.pid)
    process.terminate()
    signal_all(pids, signal.SIGCONT)
    return pids


class Fleet:
    """The workers of one configuration, as a context manager."""

    def __init__(self, commands: Sequence[Sequence[str]], env: Mapping[str, str], log: Path) -> None:
        self._commands = commands
        self._env = env
        self._log = log
        self._processes: list[subprocess.Popen[str]] = []
        self._held: list[int] = []

    def __enter__(self) -> Fleet:
        self._processes = [start_process(command, self._env, self._log) for command in self._commands]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """Ask all at once, then see each one off, so that graces do not add up."""
        left = [pid for process in self._processes for pid in ask_to_stop(process)[1:]]
        for process in self._processes:
            stop_process(process)
        signal_all(left, signal.SIGKILL)
        self._processes = []

    def hold(self) -> None:
        """Nothing is taken from now on."""
        self._held = [pid for process in self._processes for pid in tree(process.pid)]
        signal_all(self._held, signal.SIGSTOP)

    def release(self) -> float:
        """Go on; returns the moment (seconds since the epoch)."""
        at = time.time()
        signal_all(self._held, signal.SIGCONT)
        self._held = []
        return at

    @contextlib.contextmanager
    def released(self) -> Iterator[None]:
        """A held fleet works for a while: other systems are measured before and after."""
        self.release()
        try:
            yield
        finally:
            self.hold()

    def kill_owner(self, pid: int) -> float:
        """SIGKILL for the whole worker that process `pid` belongs to; returns the moment."""
        owner = next(pids for pids in map(tree, self.pids()) if pid in pids)
        at = time.time()
        signal_all(owner, signal.SIGKILL)
        return at

    def replace_dead(self) -> None:
        """Start again what was killed, so that the next repetition begins with a full fleet."""
        for index, process in enumerate(self._processes):
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(0.5)
                self._processes[index] = start_process(self._commands[index], self._env, self._log)

    def check_alive(self) -> None:
        """A worker that ended by itself is a broken benchmark: say so at once, with its log."""
        for process in self._processes:
            if process.poll() is not None:
                tail = self._log.read_text()[-2000:]
                raise RuntimeError(f"a worker ended with {process.returncode}; end of {self._log}:\n{tail}")

    def pids(self) -> list[int]:
        """The workers' own processes."""
        return [process.pid for process in self._processes]


def wait_until(condition: Callable[[], bool], limit_s: float, what: str, pause_s: float = 0.02) -> None:
    """Look again and again until `condition` holds; TimeoutError with `what` after the limit."""
    deadline = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {limit_s:.0f} s: {what}")
        time.sleep(pause_s)
