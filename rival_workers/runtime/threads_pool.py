"""Celery's thread pool, with a hand on the bell: the consumer takes the next message the moment a thread is free.

Without it the event loop notices a free thread only at its next tick, up to a second later, and the only cure would
be to hoard messages behind busy threads.
"""

from __future__ import annotations

import contextlib
import os
from typing import Any

from celery.concurrency.base import apply_target
from celery.concurrency.thread import ApplyResult
from celery.concurrency.thread import TaskPool as ThreadPool


class TaskPool(ThreadPool):  # type: ignore[misc]
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._ear, self._bell = os.pipe()
        os.set_blocking(self._ear, False)
        os.set_blocking(self._bell, False)

    def register_with_event_loop(self, hub: Any) -> None:
        hub.add_reader(self._ear, self._listen)

    def on_apply(
        self, target: Any, args: Any = None, kwargs: Any = None, callback: Any = None, accept_callback: Any = None,
        **_: Any,
    ) -> ApplyResult:  # fmt: skip
        future = self.executor.submit(self._apply, target, args, kwargs, callback, accept_callback)
        return ApplyResult(future)

    def _apply(self, *job: Any) -> None:
        try:
            apply_target(*job)
        finally:
            # A full pipe means that the bell is ringing already.
            with contextlib.suppress(BlockingIOError, OSError):
                os.write(self._bell, b"!")

    def _listen(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self._ear, 4096)
