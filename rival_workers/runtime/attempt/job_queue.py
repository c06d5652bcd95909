"""Jobs for the threads of a pool. Each job wakes one thread: of those that wait, the one that was busy last."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress

Job = Callable[[], None]


class JobQueue:
    """With `queue.SimpleQueue`, each job wakes a second thread, which finds no job, but competes for the GIL first."""

    def __init__(self) -> None:
        #: None: the thread that takes it has other work, or ends.
        self._jobs: deque[Job | None] = deque()
        #: Locks of the threads that wait. Each thread waits for the release of its own.
        self._idle: list[threading.Lock] = []

    def put(self, job: Job | None) -> None:
        self._jobs.append(job)
        self._wake_one()

    def get(self) -> Job | None:
        """Wait for a job."""
        while True:
            with suppress(IndexError):
                job = self._jobs.popleft()
                # The wake-up for a further job may have been given to this thread, which is busy now.
                if self._jobs:
                    self._wake_one()
                return job
            self._wait()

    def is_empty(self) -> bool:
        return not self._jobs

    def clear(self) -> None:
        self._jobs.clear()

    def _wake_one(self) -> None:
        with suppress(IndexError):
            self._idle.pop().release()

    def _wait(self) -> None:
        own = threading.Lock()
        own.acquire()
        self._idle.append(own)
        if not self._jobs:
            own.acquire()
            return
        # A job that was put just before has woken no thread.
        with suppress(ValueError):
            self._idle.remove(own)
