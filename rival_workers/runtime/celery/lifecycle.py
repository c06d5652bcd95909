"""A Celery worker's membership in the fleet: each of its processes is set up by Celery's signals, and taken down again.

threads, solo: the worker's process is the executor. prefork: each child is one, the parent only keeps.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from celery import Celery, signals

from rival_workers.definition.registry import Registry
from rival_workers.runtime.celery.app import Tasks
from rival_workers.runtime.celery.lost_messages import LostMessages
from rival_workers.runtime.celery.revoke_commands import RevokeCommands
from rival_workers.runtime.celery.task_events import AttemptEvents, ChildEvents, ConsumerEvents, SharedSwitch
from rival_workers.runtime.keeper import Round
from rival_workers.runtime.process import Process
from rival_workers.settings import WorkerSettings


class WorkerLifecycle:
    def __init__(
        self, app: Celery, settings: WorkerSettings, registry: Registry, *, forks: bool, name: str, **task: Any
    ) -> None:
        """`task`: more options for Rival's tasks."""
        self.app, self.settings, self.registry = app, settings, registry
        self.forks, self.name = forks, name
        self.tasks = Tasks(app, **task)
        #: That of the worker itself; in a forked child, the child's.
        self.process = Process(settings, registry, name)
        #: Called after each round of the keeper.
        self.after_round: Callable[[Round], None] = lambda done: None
        #: Called when the worker takes messages, and when it was told to stop.
        self.when_ready: Callable[[], None] = lambda: None
        self.when_leaving: Callable[[], None] = lambda: None
        #: Called in a forked child that has been set up.
        self.when_forked: Callable[[], None] = lambda: None
        self._events_wanted = SharedSwitch()
        self._stopping = SharedSwitch()

    def join(self) -> None:
        """To be called before the worker makes its pool. What is wrong with the database is said here."""
        self.process.wait_for_database()
        if self.forks:
            # Nothing open may be forked along.
            self.process.store.database.dispose()
        else:
            self._take_up_work()
        self._connect_signals()

    def _take_up_work(self) -> None:
        self.process.executor.start()
        self.tasks.coordinator = self.process.coordinator

    # -- Celery's signals ---------------------------------------------------------------------------------

    def _connect_signals(self) -> None:
        connect = {"weak": False}
        if self.forks:  # the solo pool sends these too, for a process that is no child
            signals.worker_process_init.connect(self._on_child_init, **connect)
            signals.worker_process_shutdown.connect(self._on_child_shutdown, **connect)
        signals.worker_ready.connect(self._on_ready, **connect)
        signals.worker_shutting_down.connect(self._on_shutting_down, **connect)
        signals.worker_shutdown.connect(self._on_shutdown, **connect)

    def _on_child_init(self, **_: Any) -> None:
        """In a prefork child: everything anew, nothing of the parent's connections."""
        events = AttemptEvents(ChildEvents(self.app, self.name, self._events_wanted))
        self.process = Process(self.settings, self.registry, self.name, observer=events)
        self.process.coordinator.limits.may_kill = True
        self.process.coordinator.stopping = self._stopping
        self._take_up_work()
        self.when_forked()

    def _on_child_shutdown(self, **_: Any) -> None:
        self.process.executor.stop()

    def _on_ready(self, sender: Any, **_: Any) -> None:
        if not self.forks:
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

    def _follow_events(self, consumer: Any) -> None:
        """The children ask the switch whether anybody wants their events."""
        dispatcher = consumer.event_dispatcher
        self._events_wanted.set(dispatcher is not None and dispatcher.enabled)

    def _on_shutting_down(self, **_: Any) -> None:
        self._stopping.set(True)
        self.process.stop_continuing()
        self.when_leaving()

    def _on_shutdown(self, **_: Any) -> None:
        self.process.keeper.stop()
        if not self.forks:
            self.process.executor.stop()
