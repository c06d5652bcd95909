"""Rival's own worker: Celery's, with nothing else to do but Rival's tasks."""

from __future__ import annotations

import logging
import os
import time
import warnings
from collections.abc import Callable

from celery import Celery
from celery.platforms import SecurityWarning
from celery.worker import state

from rival_workers.definition.registry import Registry
from rival_workers.definition.workflow import WorkflowDefinition
from rival_workers.runtime.celery.app import make_app
from rival_workers.runtime.celery.broker_access import require_access
from rival_workers.runtime.celery.lifecycle import WorkerLifecycle
from rival_workers.runtime.celery.prefork_pool import ReplacingPreforkPool
from rival_workers.runtime.celery.threads_pool import DaemonThreadPool
from rival_workers.runtime.keeper import Round
from rival_workers.runtime.reloading import Reloader
from rival_workers.settings import WorkerSettings

log = logging.getLogger("rival.worker")


POOLS = {"threads": DaemonThreadPool, "prefork": ReplacingPreforkPool, "solo": "solo"}


class Worker:
    def __init__(
        self, settings: WorkerSettings, registry: Registry, *, pool: str, concurrency: int, name: str,
        reload: bool = False,
    ) -> None:  # fmt: skip
        self.settings, self.registry = settings, registry
        self.pool, self.concurrency, self.name = pool, concurrency, name
        self.app: Celery = make_app(settings, concurrency)
        self._stalled = StalledConsumerWatch(settings.stalled_after)
        self._lifecycle = WorkerLifecycle(self.app, settings, registry, forks=pool == "prefork", name=name)
        self._lifecycle.when_ready, self._lifecycle.when_leaving = self._when_ready, self._leave_in_time
        self._lifecycle.after_round = self._leave_if_stalled
        # Now: whatever changes from here on is a change.
        self._reloader = Reloader(settings.workflow_paths, registry, self._announce) if reload else None
        self._lifecycle.when_forked = self._reload_in_child

    def run(self, loglevel: str = "INFO", events: bool = False) -> None:
        """Until it is told to stop. What is wrong with the database or the settings is said before Celery starts."""
        require_access(self.settings)
        self._lifecycle.join()
        # Celery's concern about root is unpickling; this worker accepts JSON only.
        warnings.simplefilter("ignore", SecurityWarning)
        worker = self.app.Worker(
            hostname=self.name, pool_cls=POOLS[self.pool], concurrency=self.concurrency, loglevel=loglevel,
            queues=self.settings.queue, task_events=events, quiet=True,
            without_gossip=True, without_mingle=True,
        )  # fmt: skip
        worker.start()
        raise SystemExit(worker.exitcode or 0)

    def _when_ready(self) -> None:
        if self._reloader is not None:
            self._reloader.start()
        names = ", ".join(sorted(workflow.name for workflow in self.registry)) or "no workflows"
        log.info("worker %s is ready (%s, %d at a time): %s", self.name, self.pool, self.concurrency, names)

    def _reload_in_child(self) -> None:
        if self._reloader is not None:
            self._reloader.in_child().start()

    def _announce(self, workflow: WorkflowDefinition) -> None:
        self._lifecycle.process.announce(workflow)

    def _leave_if_stalled(self, _: Round) -> None:
        busy = len(state.active_requests) >= self.concurrency
        # Celery's own count: in a prefork parent no task of ours runs that could count.
        if self._stalled.is_stalled(state.all_total_count[0], busy, self._lifecycle.process.doorbell.backlog):
            log.critical("deaf: the queue has messages and none came for %g s; leaving to be restarted",
                         self.settings.stalled_after)  # fmt: skip
            os._exit(3)

    def _leave_in_time(self) -> None:
        if self._reloader is not None:
            self._reloader.stop()
        self._lifecycle.process.leave_after(self.settings.shutdown_grace, self.name)


class StalledConsumerWatch:
    """Workers have gone deaf after a reconnect in several Celery releases: messages wait, none arrives."""

    def __init__(self, patience: float) -> None:
        self._patience = patience
        self._seen = -1
        self._since = time.monotonic()

    def is_stalled(self, messages: int, busy: bool, backlog: Callable[[], int | None]) -> bool:
        """Only when there was a backlog at every look for as long as the patience: one that has just begun is none."""
        now = time.monotonic()
        if messages != self._seen or busy or not backlog():
            self._seen, self._since = messages, now
        return now - self._since >= self._patience
