"""Pools for Celery's worker that run tasks on daemon threads, or in the consumer's thread."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from queue import Empty, SimpleQueue
from time import monotonic
from typing import Any

from billiard.einfo import ExceptionInfo
from celery.concurrency.base import BasePool

from rival_workers.runtime.attempt.step_scheduler import StepScheduler

logger = logging.getLogger("rival.pool")

Job = Callable[[], None]


def _attempt(
    target: Callable[..., Any],
    args: Iterable[Any],
    kwargs: dict[str, Any],
    callback: Callable[..., Any],
    accept_callback: Callable[..., Any],
    error_callback: Callable[..., Any],
) -> None:
    """Run one task like a prefork child: report any exception to Celery, and raise none."""
    try:
        try:
            accept_callback(os.getpid(), monotonic())
            outcome = target(*args, **kwargs)
        except BaseException:
            # Also SystemExit: sys.exit() in a step must not end the worker.
            error_callback(ExceptionInfo())
        else:
            callback(outcome)
    except BaseException:
        logger.exception("a task's outcome could not be reported to Celery")


def _wake() -> None:
    """Does nothing: the call wakes the event loop."""


class InlinePool(BasePool):  # type: ignore[misc]
    """Runs each task in the consumer's thread, like Celery's solo pool, but without its process-wide signal."""

    body_can_be_buffer = True
    deadline = float("inf")  # the time until which a stop waits for running tasks
    abandoned = 0  # the number of tasks that still ran then

    def on_apply(
        self,
        target: Callable[..., Any],
        args: Iterable[Any],
        kwargs: dict[str, Any],
        callback: Callable[..., Any],
        accept_callback: Callable[..., Any],
        error_callback: Callable[..., Any],
        **_: Any,
    ) -> None:
        self.submit(partial(_attempt, target, args, kwargs, callback, accept_callback, error_callback))

    def submit(self, job: Job) -> None:
        job()


class DaemonThreadPool(InlinePool):
    """Runs tasks on daemon threads, and wakes the consumer's event loop as soon as a thread is free.

    With Celery's own thread pool the loop notices that at its next tick, up to a second later, unless it prefetches
    messages for busy threads. Celery's pool also uses `concurrent.futures`, which costs more per task than a queue, and
    waits for running tasks without limit when it stops and when the interpreter exits.
    """

    signal_safe = False
    _hub: Any = None

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []

    def on_start(self) -> None:
        for number in range(self.limit):
            thread = threading.Thread(target=self._work, name=f"rival-task-{number}", daemon=True)
            thread.start()
            self._threads.append(thread)

    def register_with_event_loop(self, hub: Any) -> None:
        self._hub = hub

    def submit(self, job: Job) -> None:
        self._jobs.put(job)

    def _work(self) -> None:
        self.app.set_current()
        for job in iter(self._jobs.get, None):
            job()
            if self._hub is not None:
                self._hub.call_soon(_wake)

    def on_stop(self) -> None:
        """Drop jobs that have not begun, whose unacknowledged messages return to the queue; wait for running ones."""
        self._clear()
        self._end_threads()
        for thread in self._threads:
            thread.join(min(max(self.deadline - monotonic(), 0), threading.TIMEOUT_MAX))
        self.abandoned = sum(thread.is_alive() for thread in self._threads)

    def _clear(self) -> None:
        with suppress(Empty):
            while True:
                self._jobs.get_nowait()

    def _end_threads(self) -> None:
        for _ in self._threads:
            self._jobs.put(None)


class StepThreadPool(DaemonThreadPool):
    """Its threads also run the steps of a scheduler."""

    scheduler: StepScheduler

    @classmethod
    def of(cls, scheduler: StepScheduler) -> type[StepThreadPool]:
        """Celery makes the pool itself."""
        return type(cls.__name__, (cls,), {"scheduler": scheduler})

    def on_start(self) -> None:
        super().on_start()
        threading.Thread(target=self.scheduler.watch, name="rival-scheduler", daemon=True).start()

    def register_with_event_loop(self, hub: Any) -> None:
        super().register_with_event_loop(hub)
        self.scheduler.when_free = lambda: hub.call_soon(_wake)

    def submit(self, job: Job) -> None:
        self.scheduler.add_job(job)

    def _work(self) -> None:
        self.app.set_current()
        self.scheduler.work()

    def _clear(self) -> None:
        self.scheduler.drop_jobs()

    def _end_threads(self) -> None:
        self.scheduler.end(len(self._threads))
