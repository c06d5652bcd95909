"""Pools for Celery's worker that run tasks on daemon threads, or in the consumer's thread."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterable
from functools import partial
from time import monotonic
from typing import Any

from billiard.einfo import ExceptionInfo
from celery.concurrency.base import BasePool

from rival_workers.runtime.attempt.job_queue import Job, JobQueue
from rival_workers.runtime.attempt.step_scheduler import StepScheduler

logger = logging.getLogger("rival.pool")

#: Seconds between two looks at what still runs, while the pool stops.
_LOOK = 0.25


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
    count_over: Callable[[], int] = staticmethod(lambda: 0)  # how many run attempts that are over

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
        self._jobs = JobQueue()
        self._threads: list[threading.Thread] = []

    @classmethod
    def counting(cls, count_over: Callable[[], int]) -> type[DaemonThreadPool]:
        """Celery makes the pool itself."""
        return type(cls.__name__, (cls,), {"count_over": staticmethod(count_over)})

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
        """Drop jobs that have not begun, whose unacknowledged messages return to the queue; wait for running ones whose
        outcome counts."""
        self._clear()
        self._end_threads()
        while self._still_runs() and (left := self.deadline - monotonic()) > 0:
            next(thread for thread in self._threads if thread.is_alive()).join(min(left, _LOOK))
        self.abandoned = sum(thread.is_alive() for thread in self._threads)

    def _still_runs(self) -> bool:
        """A thread runs an attempt that still counts."""
        over = self.count_over()
        if over:
            self._end_threads(over)
        return sum(thread.is_alive() for thread in self._threads) > over

    def _clear(self) -> None:
        self._jobs.clear()

    def _end_threads(self, over: int = 0) -> None:
        for _ in self._threads:
            self._jobs.put(None)


class StepThreadPool(DaemonThreadPool):
    """Its threads also run the steps of a scheduler."""

    scheduler: StepScheduler

    @classmethod
    def of(cls, scheduler: StepScheduler, count_over: Callable[[], int]) -> type[StepThreadPool]:
        return type(cls.__name__, (cls,), {"scheduler": scheduler, "count_over": staticmethod(count_over)})

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

    def _end_threads(self, over: int = 0) -> None:
        self.scheduler.end(len(self._threads), over)
