"""Celery's own worker in a daemon thread of this process, over the in-process transport.

It does not touch signals, logging, standard streams, the current app of other threads, or the exit of the process.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from time import monotonic
from types import TracebackType
from typing import Any, Literal

from celery import Celery
from celery._state import _set_task_join_will_block, task_join_will_block
from celery.bootsteps import RUN
from celery.exceptions import WorkerShutdown
from celery.worker import WorkController, state
from kombu.asynchronous.timer import Timer

from rival_workers.library import inproc_transport
from rival_workers.runtime.celery.consumer import ValidatingConsumer
from rival_workers.runtime.celery.threads_pool import DaemonThreadPool, InlinePool

logger = logging.getLogger(__name__)

# A message, a timer and a stop all wake the loop; this only limits how late it sees Celery's global stop flag.
LONGEST_WAIT = 2.0

PoolName = Literal["threads", "solo"]


class LoopTimer(Timer):  # type: ignore[misc]
    """The consumer loop's timers.

    Celery's timer thread sleeps until the next entry it knows, so an earlier one that was added later fired 0.8 s
    late; it also changes the prefetch count from its own thread, and ends the whole process if it crashes. Timers that
    fire in the thread of the loop do none of that.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.on_enter: Callable[[], None] = lambda: None
        self._entries = iter(self)

    def _enter(self, *args: Any, **kwargs: Any) -> Any:
        entry = super()._enter(*args, **kwargs)
        self.on_enter()
        return entry

    def fire_next(self) -> float:
        """Runs one entry that is due, if any; returns the seconds until the next one."""
        delay, entry = next(self._entries)
        if entry is not None:
            self.apply_entry(entry)
            return 0.0
        return LONGEST_WAIT if delay is None else min(delay, LONGEST_WAIT)


class InprocConsumer(ValidatingConsumer):
    """Celery's consumer with its own loop: a message, a timer and a stop all wake it at once.

    Celery's `synloop` drains once more after it has seen the stop flag: a stop took 4 s.
    """

    def loop_args(self) -> tuple[()]:
        return ()

    def loop(self) -> None:
        self.timer.on_enter = self.connection.transport.interrupt
        self.controller.on_stop_requested = self.connection.transport.interrupt
        self.task_consumer.on_message = self.create_task_handler()
        self.task_consumer.consume()
        self.on_ready()
        while self.blueprint.state == RUN and self.connection:
            self.run_once()

    def run_once(self) -> None:
        """Handles at most one timer and one message, so that neither can starve the other or a stop."""
        if self.controller.stop_requested:
            raise WorkerShutdown(0)
        state.maybe_shutdown()
        if self.qos.prev != self.qos.value:
            self.qos.update()
        self.perform_pending_operations()
        idle = self.timer.fire_next()
        with suppress(TimeoutError):
            self.connection.drain_events(timeout=idle)


class InprocController(WorkController):  # type: ignore[misc]
    """Celery's worker. It reports whether it consumes and which error ended it; any thread may stop it."""

    def __init__(self, **options: Any) -> None:
        self.settled = threading.Event()  # it consumes, or it has ended
        self.consuming = False
        self.failure: BaseException | None = None
        self.stop_requested = False
        self.on_stop_requested: Callable[[], None] = lambda: None
        super().__init__(**options)

    def on_consumer_ready(self, consumer: InprocConsumer) -> None:
        self.consuming = True
        self.settled.set()

    def request_stop(self) -> None:
        # Our own flag: `celery.worker.state.should_stop` would also stop a worker that hosts this process.
        self.stop_requested = True
        self.on_stop_requested()

    def start(self) -> None:
        try:
            self.blueprint.start(self)
        except SystemExit as end:
            self.stop(exitcode=end.code)
        except BaseException as error:
            logger.critical("the in-process worker failed", exc_info=True)
            self.failure = error
            self.stop(exitcode=1)


_POOLS: dict[PoolName, type[InlinePool]] = {"threads": DaemonThreadPool, "solo": InlinePool}

# Celery keeps a worker's requests in module globals, so a process can have one worker at a time.
_the_only_worker = threading.Lock()


class InprocWorker:
    """Runs `app`'s tasks in this process between `start()` and `stop()`; can be started again afterwards."""

    def __init__(
        self,
        app: Celery,
        *,
        pool: PoolName = "threads",
        concurrency: int = 4,
        queues: Iterable[str] | None = None,
        hostname: str | None = None,
        count_over: Callable[[], int] = lambda: 0,
    ) -> None:
        """`count_over`: how many running attempts do not count any more; a stop does not wait for them."""
        self.app = app
        self.pool, self._count_over = pool, count_over
        self.concurrency = concurrency
        self.queues = None if queues is None else list(queues)
        self.hostname = hostname or f"inproc-{os.getpid()}@{socket.gethostname()}"
        self._controller: InprocController | None = None
        self._thread: threading.Thread | None = None

    @property
    def running(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    @property
    def failure(self) -> BaseException | None:
        """The error that ended the worker, if it ended by itself."""
        return self._controller and self._controller.failure

    def start(self, timeout: float = 10.0) -> None:
        """Returns when the worker consumes tasks; raises if it cannot."""
        _require_inproc_broker(self.app)
        if not _the_only_worker.acquire(blocking=False):
            raise RuntimeError("this process already runs an in-process worker: stop that one first")
        try:
            controller = self._controller = self._build()
            self._thread = threading.Thread(
                target=self._run, args=(controller,), name="rival-inproc-worker", daemon=True
            )
            self._thread.start()
        except BaseException:
            _the_only_worker.release()
            raise
        self._await_consuming(controller, self._thread, timeout)

    def stop(self, timeout: float = 10.0) -> bool:
        """Stops consuming and waits for the running tasks; returns False if some were still running after `timeout`.

        Those continue on their daemon threads. With the solo pool the worker itself is still in its task then, and no
        other worker can start before the task ends."""
        controller, thread = self._controller, self._thread
        if controller is None or thread is None:
            return True
        controller.pool.deadline = monotonic() + timeout
        controller.pool.count_over = self._count_over
        controller.request_stop()
        # The pool observes the deadline itself; the extra second is for closing the connection.
        thread.join(timeout + 1.0 if self.pool == "threads" else timeout)
        return not thread.is_alive() and not controller.pool.abandoned

    def __enter__(self) -> InprocWorker:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self.stop():
            logger.warning("the in-process worker left running tasks behind")

    def _build(self) -> InprocController:
        would_block = task_join_will_block()
        try:
            return InprocController(
                app=self.app,
                hostname=self.hostname,
                queues=self.queues,
                pool=_POOLS[self.pool],
                concurrency=self.concurrency if self.pool == "threads" else 1,
                consumer_cls=InprocConsumer,
                timer_cls=LoopTimer,
                without_mingle=True,
                without_gossip=True,
                without_heartbeat=True,
            )
        finally:
            # A worker forbids waiting for results in its whole process; this process belongs to the producer.
            _set_task_join_will_block(would_block)

    def _run(self, controller: InprocController) -> None:
        try:
            self.app.set_current()  # for this thread only
            controller.start()
        finally:
            controller.consuming = False
            self._drop_requests()
            controller.settled.set()
            _the_only_worker.release()

    def _drop_requests(self) -> None:
        """Those of tasks that were left running would count as reserved by the next worker of this process."""
        for request in list(state.requests.values()):
            if request.hostname == self.hostname:
                state.task_ready(request)

    def _await_consuming(self, controller: InprocController, thread: threading.Thread, timeout: float) -> None:
        controller.settled.wait(timeout)
        if controller.consuming:
            return
        controller.request_stop()
        thread.join(1.0)  # so that another worker can be started at once
        reason = controller.failure or f"it was not consuming within {timeout:g} s"
        raise RuntimeError(f"the in-process worker could not start: {reason}") from controller.failure


def _require_inproc_broker(app: Celery) -> None:
    inproc_transport.register()
    with app.connection_for_read() as connection:
        scheme, url = connection.transport.driver_type, connection.as_uri()
    if scheme != inproc_transport.SCHEME:
        raise ValueError(
            f"an in-process worker needs a broker at {inproc_transport.SCHEME}://name/, but app {app.main!r} has {url}"
        )
