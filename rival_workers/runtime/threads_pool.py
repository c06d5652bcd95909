"""Celery's thread pool, with a hand on the bell: the consumer takes the next message the moment a thread is free.

Without it the event loop notices a free thread only at its next tick, up to a second later, and the only cure would
be to hoard messages behind busy threads.
"""

from __future__ import annotations

from typing import Any

from celery.concurrency.base import apply_target
from celery.concurrency.thread import ApplyResult
from celery.concurrency.thread import TaskPool as ThreadPool


def _awake() -> None:
    """Nothing to do but to have woken up."""


class TaskPool(ThreadPool):  # type: ignore[misc]
    _hub: Any = None

    def register_with_event_loop(self, hub: Any) -> None:
        self._hub = hub

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
            if self._hub is not None:
                self._hub.call_soon(_awake)
