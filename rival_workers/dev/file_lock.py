"""File locks. The kernel releases them when their holder dies."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from types import TracebackType

from rival_workers.dev.waiting import wait_until


class FileLock:
    """One open file description on `path`; two of them exclude each other even within a process."""

    def __init__(self, path: Path) -> None:
        self.path = path
        # Not inherited over exec, so that a server never keeps its owner's lock.
        self._fd: int | None = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def try_lock(self, *, shared: bool = False) -> bool:
        mode = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
        try:
            fcntl.flock(self._open_fd(), mode | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def lock(self, timeout: float, *, shared: bool = False) -> bool:
        return wait_until(lambda: self.try_lock(shared=shared), timeout)

    def is_current(self) -> bool:
        """False if the file was removed or replaced, so that the lock has no effect any more."""
        try:
            return os.path.samestat(os.stat(self.path), os.fstat(self._open_fd()))
        except FileNotFoundError:
            return False

    def close(self) -> None:
        """Closes instead of unlocking: a forked child that shares the lock keeps it."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def _open_fd(self) -> int:
        if self._fd is None:
            raise ValueError(f"the lock on {self.path} is closed")
        return self._fd

    def __enter__(self) -> FileLock:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def is_locked(path: Path) -> bool:
    """Whether a process holds the exclusive lock on `path` now."""
    with FileLock(path) as probe:
        return not probe.try_lock(shared=True)
