"""Rival's own worker process: a Celery worker that runs only Rival's tasks, and its entry point
(`python -m rival_workers.runtime.celery.worker …`).
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

from celery import Celery
from celery.apps import worker as apps_worker
from celery.concurrency.prefork import TaskPool
from celery.platforms import SecurityWarning
from celery.worker import state

from rival_client.errors import InvalidSetting, RivalError
from rival_workers.definition.default_registry import default_registry
from rival_workers.definition.files import register_paths
from rival_workers.definition.registry import Registry
from rival_workers.definition.workflow import WorkflowDefinition
from rival_workers.runtime.attempt.step_scheduler import StepScheduler
from rival_workers.runtime.celery.app import make_app
from rival_workers.runtime.celery.broker_access import require_access
from rival_workers.runtime.celery.lifecycle import WorkerLifecycle
from rival_workers.runtime.celery.run_intake import RunIntake
from rival_workers.runtime.celery.threads_pool import DaemonThreadPool, StepThreadPool
from rival_workers.runtime.keeper.overdue_rows import Round
from rival_workers.runtime.logs.process_log import start_logging, write_json_line
from rival_workers.runtime.reloading import Reloader
from rival_workers.settings import WorkerSettings

log = logging.getLogger("rival.worker")


class ReplacingPreforkPool(TaskPool):  # type: ignore[misc]
    """Celery's prefork pool, except that a child that dies while the worker starts is replaced.

    Celery ends a worker if a child dies before the first connection to the broker: it assumes that children cannot
    start. But a child that was killed, for example for its memory, is not a reason to end the others. Children that die
    again and again still end the worker: billiard limits how often it starts them.
    """

    def did_start_ok(self) -> bool:
        """The event loop notices the end of a child, and starts another."""
        return True


POOLS = {"prefork": ReplacingPreforkPool, "solo": "solo"}


class Worker:
    def __init__(
        self,
        settings: WorkerSettings,
        registry: Registry,
        *,
        pool: str,
        concurrency: int,
        name: str,
        reload: bool = False,
    ) -> None:
        self.settings, self.registry = settings, registry
        self.pool, self.concurrency, self.name = pool, concurrency, name
        self.app: Celery = make_app(settings, concurrency)
        self._scheduler: StepScheduler | None = None
        self._watch = StalledConsumerWatch(settings.stalled_after)
        self._lifecycle = WorkerLifecycle(self.app, settings, registry, forks=pool == "prefork", name=name)
        self._lifecycle.when_ready, self._lifecycle.when_leaving = self._when_ready, self._leave_in_time
        self._lifecycle.after_round = self._leave_if_stalled
        # Created now, so that it notices changes from here on.
        self._reloader = Reloader(settings.workflow_paths, registry, self._announce) if reload else None
        self._lifecycle.when_forked = self._reload_in_child

    def run(self, loglevel: str = "INFO", events: bool = False) -> None:
        """Runs until it is stopped. Raises errors of the settings and of the database before Celery starts."""
        require_access(self.settings)
        self._lifecycle.start()
        # Celery warns about root because of pickle; this worker accepts JSON only.
        warnings.simplefilter("ignore", SecurityWarning)
        worker = self.app.Worker(
            hostname=self.name,
            pool_cls=self._pool(),
            concurrency=self.concurrency,
            loglevel=loglevel,
            queues=list(self.settings.served.in_broker),
            task_events=events,
            quiet=True,
            without_gossip=True,
            without_mingle=True,
        )
        worker.start()
        raise SystemExit(worker.exitcode or 0)

    def _pool(self) -> Any:
        """Threads share a scheduler if the store can commit the outcomes of several runs together."""
        process = self._lifecycle.process
        if self.pool != "threads":
            return POOLS[self.pool]
        count_over = process.executor.count_over
        if not process.store.database.is_postgres:
            return DaemonThreadPool.counting(count_over)
        self._scheduler = StepScheduler(process.store, process.doorbell, self.concurrency)
        intake = RunIntake(self._scheduler, process.coordinator, self.settings.served)
        process.take_due_messages(intake.take_due)
        self.app.conf.broker_transport_options = {**self.app.conf.broker_transport_options, "intake": intake}
        return StepThreadPool.of(self._scheduler, count_over)

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
        in_hand = 0 if self._scheduler is None else self._scheduler.in_hand
        busy = len(state.active_requests) + in_hand >= self.concurrency
        # Celery's own count, since Rival's tasks do not run in a prefork parent.
        if self._watch.is_stalled(state.all_total_count[0], busy, self._backlog):
            stalled = "consumer stalled: the queue has messages and none arrived for %g s; leaving to be restarted"
            log.critical(stalled, self.settings.stalled_after)
            os._exit(3)

    def _backlog(self) -> int:
        """Messages in the queues that this worker serves."""
        doorbell = self._lifecycle.process.doorbell
        return sum(doorbell.backlog(queue) or 0 for queue in self.settings.served.names)

    def _leave_in_time(self) -> None:
        if self._reloader is not None:
            self._reloader.stop()
        self._lifecycle.process.leave_after(self.settings.shutdown_grace, self.name)


class StalledConsumerWatch:
    """Detects a consumer that receives no messages although the queue has some, after a reconnect for example. Several
    releases of Celery have this bug.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._seen = -1
        self._since = time.monotonic()

    def is_stalled(self, messages: int, busy: bool, backlog: Callable[[], int | None]) -> bool:
        """True if every check during `seconds` saw a backlog and a free slot, and no message arrived."""
        now = time.monotonic()
        if messages != self._seen or busy or not backlog():
            self._seen, self._since = messages, now
        return now - self._since >= self._seconds


def main(argv: list[str] | None = None) -> int:
    options = _parser().parse_args(argv)
    how = {name: getattr(options, name) for name in ("pool", "concurrency", "name", "reload")}
    try:
        settings = WorkerSettings.from_env()
        start_logging(options.loglevel, settings.log_format)
        if settings.log_format == "json":
            # The messages of Celery's signal handlers bypass logging.
            apps_worker.safe_say = lambda text, *_: write_json_line("rival.worker", text)
        logging.getLogger("celery").setLevel(max(logging.getLogger().level, logging.WARNING))
        register_paths(settings.workflow_paths)
        Worker(settings, default_registry, **how).run(loglevel=options.loglevel, events=options.events)
    except RivalError as error:
        print(f"rival worker: {error}", file=sys.stderr)
        return 2 if isinstance(error, InvalidSetting) else 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="rival-worker-process")
    parser.add_argument("--pool", default="threads", choices=["threads", "prefork", "solo"])
    parser.add_argument("--concurrency", type=int, default=8)
    parser.add_argument("--name", default="rival@%h")
    parser.add_argument("--loglevel", default="INFO")
    parser.add_argument("--events", action="store_true")
    parser.add_argument("--reload", action="store_true")
    return parser


if __name__ == "__main__":
    sys.exit(main())
