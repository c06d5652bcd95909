"""Celery's worker with Rival in it: sets each process up by Celery's signals, and takes it down again.

threads, solo: the worker's process is the executor. prefork: each child is one, the parent only keeps.
"""

from __future__ import annotations

import logging
import os
import time
import warnings
from collections.abc import Callable
from typing import Any

from celery import Celery, signals
from celery.platforms import SecurityWarning
from celery.worker import state

from rival_workers.definition.registry import Registry
from rival_workers.definition.workflow import WorkflowDefinition
from rival_workers.runtime.celery_app import Tasks, make_app
from rival_workers.runtime.celery_events import AttemptEvents, ChildEvents, ConsumerEvents, SharedSwitch
from rival_workers.runtime.keeper import Round
from rival_workers.runtime.process import Process
from rival_workers.runtime.reloading import Reloader
from rival_workers.runtime.threads_pool import DaemonThreadPool
from rival_workers.settings import WorkerSettings

log = logging.getLogger("rival.worker")


POOLS = {"threads": DaemonThreadPool, "prefork": "prefork", "solo": "solo"}


class Worker:
    def __init__(
        self, settings: WorkerSettings, registry: Registry, *, pool: str, concurrency: int, name: str,
        reload: bool = False,
    ) -> None:  # fmt: skip
        self.settings, self.registry = settings, registry
        self.pool, self.concurrency, self.name = pool, concurrency, name
        self.app: Celery = make_app(settings, concurrency)
        self.tasks = Tasks(self.app)
        self.process: Process | None = None
        self._events_wanted = SharedSwitch()
        self._stopping = SharedSwitch()
        self._deaf = DeafWatch(settings.deaf_after)
        # Now: whatever changes from here on is a change.
        self._reloader = Reloader(settings.workflow_paths, registry, self._announce) if reload else None
        self._connect_signals()

    def run(self, loglevel: str = "INFO", events: bool = False) -> None:
        """Until it is told to stop. What is wrong with the database or the settings is said before Celery starts."""
        self._set_up()
        # Celery's concern about root is unpickling; this worker accepts JSON only.
        warnings.simplefilter("ignore", SecurityWarning)
        worker = self.app.Worker(
            hostname=self.name, pool_cls=POOLS[self.pool], concurrency=self.concurrency, loglevel=loglevel,
            queues=self.settings.queue, task_events=events, quiet=True,
            without_gossip=True, without_mingle=True,
        )  # fmt: skip
        worker.start()
        raise SystemExit(worker.exitcode or 0)

    # -- Celery's signals ---------------------------------------------------------------------------------

    def _connect_signals(self) -> None:
        connect = {"weak": False}
        if self.pool == "prefork":  # the solo pool sends these too, for a process that is no child
            signals.worker_process_init.connect(self._on_child_init, **connect)
            signals.worker_process_shutdown.connect(self._on_child_shutdown, **connect)
        signals.worker_ready.connect(self._on_ready, **connect)
        signals.worker_shutting_down.connect(self._on_shutting_down, **connect)
        signals.worker_shutdown.connect(self._on_shutdown, **connect)

    def _set_up(self) -> None:
        self.process = Process(self.settings, self.registry, self.name)
        self.process.wait_for_database()
        self.process.register_workflows()
        if self.pool == "prefork":
            # Nothing open may be forked along.
            self.process.store.database.dispose()
        else:
            self.process.executor.start()
            self.tasks.coordinator = self.process.coordinator

    def _on_child_init(self, **_: Any) -> None:
        """In a prefork child: everything anew, nothing of the parent's connections."""
        events = AttemptEvents(ChildEvents(self.app, self.name, self._events_wanted))
        self.process = Process(self.settings, self.registry, self.name, observer=events)
        self.process.coordinator.may_kill = True
        self.process.coordinator.stopping = self._stopping
        self.process.executor.start()
        self.tasks.coordinator = self.process.coordinator

        self._start_reloading(self._reloader and self._reloader.in_child())

    def _start_reloading(self, reloader: Reloader | None) -> None:
        self._reloader = reloader
        if reloader is not None:
            reloader.start()

    def _announce(self, workflow: WorkflowDefinition) -> None:
        assert self.process is not None, "it is made before anything is followed"
        self.process.announce(workflow)

    def _on_child_shutdown(self, **_: Any) -> None:
        if self.process is not None:
            self.process.executor.stop()

    def _on_ready(self, sender: Any, **_: Any) -> None:
        assert self.process is not None
        if self.pool == "prefork":
            self._follow_events(sender)
        else:
            self.process.coordinator.observer = AttemptEvents(ConsumerEvents(sender))
        self.process.keeper.after_round = lambda done: self._after_round(sender, done)
        self.process.keeper.start()
        self._start_reloading(self._reloader)
        names = ", ".join(sorted(workflow.name for workflow in self.registry)) or "no workflows"
        log.info("worker %s is ready (%s, %d at a time): %s", self.name, self.pool, self.concurrency, names)

    def _follow_events(self, consumer: Any) -> None:
        dispatcher = consumer.event_dispatcher
        self._events_wanted.set(dispatcher is not None and dispatcher.enabled)

    def _after_round(self, consumer: Any, done: Round) -> None:
        if self.pool == "prefork":
            self._follow_events(consumer)
        assert self.process is not None
        busy = len(state.active_requests) >= self.concurrency
        # Celery's own count: in a prefork parent no task of ours runs that could count.
        if self._deaf.is_deaf(state.all_total_count[0], busy, self.process.doorbell.backlog):
            log.critical("deaf: the queue has messages and none came for %g s; leaving to be restarted",
                         self.settings.deaf_after)  # fmt: skip
            os._exit(3)

    def _on_shutting_down(self, **_: Any) -> None:
        if self.process is None:
            return
        self._stopping.set(True)
        self.process.stop_going_on()
        self.process.leave_after(self.settings.shutdown_grace, self.name)

    def _on_shutdown(self, **_: Any) -> None:
        if self.process is None:
            return
        if self._reloader is not None:
            self._reloader.stop()
        self.process.keeper.stop()
        if self.pool != "prefork":
            self.process.executor.stop()


class DeafWatch:
    """Workers have gone deaf after a reconnect in several Celery releases: messages wait, none arrives."""

    def __init__(self, patience: float) -> None:
        self._patience = patience
        self._seen = -1
        self._since = time.monotonic()

    def is_deaf(self, messages: int, busy: bool, backlog: Callable[[], int | None]) -> bool:
        """Only when there was a backlog at every look for as long as the patience: one that has just begun is none."""
        now = time.monotonic()
        if messages != self._seen or busy or not backlog():
            self._seen, self._since = messages, now
        return now - self._since >= self._patience
