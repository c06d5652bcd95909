"""One server process: start, stop, kill, freeze. Subclasses define the server."""

from __future__ import annotations

import signal
import subprocess
import time
from abc import ABC, abstractmethod
from pathlib import Path
from typing import IO

from rival_workers.dev.errors import StackError
from rival_workers.dev.file_lock import FileLock
from rival_workers.dev.processes import family_of, kill_and_wait, send
from rival_workers.dev.spawn import Launch, spawn
from rival_workers.dev.waiting import wait_until

START_TIMEOUT = 60.0
LONGEST_LOG = 10 * 1024 * 1024


class Server(ABC):
    """A real server on files in `directory`, a child of this process that dies with it."""

    name: str
    # Sent one after the other by `stop`, each with the seconds to wait for the end; SIGKILL is always the last.
    stop_signals: tuple[tuple[signal.Signals, float], ...]

    def __init__(self, directory: Path | str) -> None:
        self.directory = Path(directory).absolute()
        self._process: subprocess.Popen[bytes] | None = None
        self._lock: FileLock | None = None

    @property
    @abstractmethod
    def url(self) -> str: ...

    @abstractmethod
    def prepare(self) -> None:
        """Creates the files that the server needs, or checks them."""

    @abstractmethod
    def launch(self, log: IO[bytes]) -> Launch: ...

    @abstractmethod
    def leftovers(self) -> list[int]:
        """Processes of an earlier server on the same files whose owner died without stopping it."""

    @abstractmethod
    def answers(self) -> bool: ...

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None and self.running else None

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def log_path(self) -> Path:
        return self.directory / f"{self.name}.log"

    def start(self) -> None:
        """Returns when the server answers; does nothing when it runs already."""
        if self.running:
            return
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._take_lock()
        try:
            self._clear_leftovers()
            self.prepare()
            with self._open_log() as log:
                self._process = spawn(self.launch(log))
            self._await_answer()
        except BaseException:
            self.kill()
            raise

    def stop(self) -> None:
        """Sends the stop signals, then kills: takes a limited time in any state of the server."""
        if self._process is None:
            return
        self.thaw()
        for what, seconds in self.stop_signals:
            send([self._process.pid] if self.running else [], what)
            if wait_until(lambda: not self.running, seconds):
                break
        self.kill()

    def kill(self) -> None:
        """SIGKILL to the server and its children, like a crash."""
        if self._process is not None:
            # Never signal a process that was reaped: its pid may belong to another process.
            family = family_of(self._process.pid) if self.running else []
            send(family, signal.SIGKILL)
            self._process.wait()
            kill_and_wait(self.leftovers)
            self._process = None
        self._release_lock()

    def freeze(self) -> None:
        """SIGSTOP: connections stay open and nothing answers."""
        if self._process is not None and self.running:
            # The parent first, so that it does not fork while its children are stopped.
            send([self._process.pid], signal.SIGSTOP)
            send(family_of(self._process.pid)[1:], signal.SIGSTOP)

    def thaw(self) -> None:
        if self._process is not None and self.running:
            send(reversed(family_of(self._process.pid)), signal.SIGCONT)

    def log_tail(self, lines: int = 20) -> str:
        try:
            text = self.log_path.read_text(errors="replace")
        except FileNotFoundError:
            return "(no log)"
        return "\n".join(text.splitlines()[-lines:])

    def failed(self, what: str) -> StackError:
        return StackError(f"The embedded {self.name} server {what}. The end of {self.log_path}:\n{self.log_tail()}")

    def _take_lock(self) -> None:
        """Held while the server runs: without it, the server of a live owner would look like a leftover."""
        if self._lock is not None:
            return  # the server crashed; this process still holds the lock
        lock = FileLock(self.directory / f"{self.name}.lock")
        if not lock.lock(timeout=2.0):  # an owner that is ending needs a moment
            lock.close()
            raise StackError(
                f"Another process runs the {self.name} server in {self.directory}: share it, with open_stack."
            )
        self._lock = lock

    def _release_lock(self) -> None:
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def _clear_leftovers(self) -> None:
        if not kill_and_wait(self.leftovers):
            raise self.failed(f"of an earlier owner does not end (processes {self.leftovers()})")

    def _open_log(self) -> IO[bytes]:
        if self.log_path.exists() and self.log_path.stat().st_size > LONGEST_LOG:
            self.log_path.unlink()
        return self.log_path.open("ab")

    def _await_answer(self) -> None:
        deadline = time.monotonic() + START_TIMEOUT
        while not self.answers():
            if not self.running:
                raise self.failed("ended while it was starting")
            if time.monotonic() > deadline:
                raise self.failed(f"did not answer within {START_TIMEOUT:.0f} seconds")
            time.sleep(0.01)
