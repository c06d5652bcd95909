"""The lifecycle of a Celery worker as a part of the fleet: Celery's signals start and stop Rival in its processes.

With the pools threads and solo, the worker's process is the executor. With prefork, each child is an executor, and the
parent runs only the keeper.
"""

from __future__ import annotations

import gc
import logging
from collections.abc import Callable
from typing import Any

from billiard.exceptions import WorkerLostError
from celery import Celery, signals

from rival_client.broker.doorbell import Doorbell
from rival_client.broker.message import ATTEMPT_TASK, EVENT_TASK, RUN_TASK
from rival_workers.definition.registry import Registry
from rival_workers.runtime.celery.app import Tasks
from rival_workers.runtime.celery.remote_control import (
    AttemptEvents,
    ChildEvents,
    ConsumerEvents,
    RevokeCommands,
    SharedSwitch,
    are_task_events_wanted,
)
from rival_workers.runtime.celery.untrusted_messages import Garbage, read_call
from rival_workers.runtime.fleet_rules import SharedNumber
from rival_workers.runtime.keeper.overdue_rows import Round
from rival_workers.runtime.process import Process
from rival_workers.settings import WorkerSettings

log = logging.getLogger("rival.worker")

#: Objects after which Python's garbage collector looks for cycles. A step makes some dozens, and hardly any cycle.
COLLECT_AFTER = 10_000


class WorkerLifecycle:
    def __init__(
        self, app: Celery, settings: WorkerSettings, registry: Registry, *, forks: bool, name: str, **task: Any
    ) -> None:
        """`task`: further options of Rival's tasks."""
        self.app, self.settings, self.registry = app, settings, registry
        self.forks, self.name = forks, name
        self.tasks = Tasks(app, **task)
        #: The worker's process; in a forked child, the child's.
        self.process = Process(settings, registry, name)
        #: Called after each round of the keeper.
        self.after_round: Callable[[Round], None] = lambda done: None
        #: Called when the worker begins to consume, and when it begins to stop.
        self.when_ready: Callable[[], None] = lambda: None
        self.when_leaving: Callable[[], None] = lambda: None
        #: Called in a forked child at the end of its start.
        self.when_forked: Callable[[], None] = lambda: None
        self._events_wanted = SharedSwitch()
        self._stopping = SharedSwitch()
        self._rules_version = SharedNumber()

    def start(self) -> None:
        """Call it before the worker creates its pool. Raises the errors of the database and of its schema."""
        self.process.wait_for_database()
        if self.forks:
            self.process.rules.shared = self._rules_version
            self.process.rules.publish()
            # Children must not inherit open connections.
            self.process.store.database.dispose()
        else:
            self._start_executor()
        self._connect_signals()

    def _start_executor(self) -> None:
        self.process.executor.start()
        self.tasks.coordinator = self.process.coordinator

    # -- Celery's signals ---------------------------------------------------------------------------------

    def _connect_signals(self) -> None:
        connect = {"weak": False}
        if self.forks:  # the solo pool also sends these, for the worker's own process
            signals.worker_process_init.connect(self._on_child_init, **connect)
            signals.worker_process_shutdown.connect(self._on_child_shutdown, **connect)
        signals.worker_ready.connect(self._on_ready, **connect)
        signals.worker_shutting_down.connect(self._on_shutting_down, **connect)
        signals.worker_shutdown.connect(self._on_shutdown, **connect)

    def _on_child_init(self, **_: Any) -> None:
        """In a prefork child: create a new Process, without the parent's connections."""
        events = AttemptEvents(ChildEvents(self.app, self.name, self._events_wanted))
        self.process = Process(self.settings, self.registry, self.name, observer=events, keeps_countdowns=False)
        self.process.coordinator.limits.may_kill = True
        self.process.coordinator.stopping = self._stopping
        self.process.rules.shared = self._rules_version
        self.process.executor.slots = 1
        self._start_executor()
        self.when_forked()
        _spare_collector()

    def _on_child_shutdown(self, **_: Any) -> None:
        self.process.executor.stop()

    def _on_ready(self, sender: Any, **_: Any) -> None:
        if not self.forks:
            self.process.executor.slots = sender.pool.limit
            self.process.coordinator.observer = AttemptEvents(ConsumerEvents(sender))
        if self.forks:
            LostMessages(self.process.doorbell).watch()

        def after_round(done: Round) -> None:
            self._follow_events(sender)
            self.after_round(done)

        only = hasattr(self.app, "only_tasks")
        events = ConsumerEvents(sender)
        RevokeCommands(self.process.revocations, events.send, kills=self.forks, only=only).install()
        self.process.keeper.after_round = after_round
        self.process.keeper.start()
        self.when_ready()
        _spare_collector()

    def _follow_events(self, consumer: Any) -> None:
        """Set the switch from which the children read whether events are wanted."""
        self._events_wanted.set(are_task_events_wanted(consumer.event_dispatcher))

    def _on_shutting_down(self, **_: Any) -> None:
        self._stopping.set(True)
        self.process.stop_continuing()
        self.when_leaving()

    def _on_shutdown(self, **_: Any) -> None:
        self.process.keeper.stop()
        if not self.forks:
            self.process.executor.stop()
        self.process.hand_over_countdowns()


def _spare_collector() -> None:
    """Exclude the objects of the start (modules, definitions, Celery's parts) from garbage collections: they stay, and
    a full collection of them would stop all steps for 0.1 s. A threshold that the process has set is kept.
    """
    gc.freeze()
    first, *others = gc.get_threshold()
    if first:
        gc.set_threshold(max(first, COLLECT_AFTER), *others)


class LostMessages:
    """Publishes the message of a killed prefork child again. Runs in the parent, which the pool notifies.

    Messages are acknowledged early, so a message that a child has received is lost with it. Steps that the child had
    claimed are taken over like those of any dead executor. Steps that it had not claimed yet would wait for the keeper.
    A message that was not lost is published twice, which has no effect because of its token.
    """

    def __init__(self, doorbell: Doorbell) -> None:
        self._doorbell = doorbell

    def watch(self) -> None:
        signals.task_failure.connect(self._on_failure, weak=False)

    def _on_failure(self, sender: Any, exception: Any, args: Any = (), kwargs: Any = None, **_: Any) -> None:
        if not isinstance(exception, WorkerLostError) or sender.name not in (RUN_TASK, ATTEMPT_TASK, EVENT_TASK):
            return
        try:
            message = read_call(sender.name, [list(args), dict(kwargs or {}), {}], {})
        except Garbage:
            return
        log.info("a process was killed before the end of %s: its message is published again", sender.name)
        self._doorbell.publish([message])
