"""One worker process: builds its store, doorbell, executor, coordinator and keeper. It does not know Celery."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Sequence

from rival_client.broker.doorbell import Doorbell, open_doorbell
from rival_client.broker.message import AnyMessage
from rival_client.errors import ConfigurationError, DatabaseError
from rival_client.sql.grants import Grant
from rival_workers.definition.registry import Registry
from rival_workers.definition.workflow import WorkflowDefinition
from rival_workers.runtime import failpoints
from rival_workers.runtime.attempt.async_loop import async_steps
from rival_workers.runtime.attempt.calls_over import still_running
from rival_workers.runtime.attempt.coordinator import Coordinator
from rival_workers.runtime.attempt.revokes import Revocations
from rival_workers.runtime.attempt.telemetry import AttemptObserver
from rival_workers.runtime.attempt.timers import CountdownDoorbell
from rival_workers.runtime.executor import Executor
from rival_workers.runtime.fleet_rules import FleetRules
from rival_workers.runtime.host import host_name
from rival_workers.runtime.keeper import Keeper
from rival_workers.settings import WorkerSettings
from rival_workers.store import migrations, open_store
from rival_workers.store.interface import Store

log = logging.getLogger("rival.process")


def _kill_child(pid: int) -> None:
    if pid != os.getpid():
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _open_doorbell(settings: WorkerSettings, keeps_countdowns: bool) -> Doorbell:
    opened = open_doorbell(settings.broker_url, settings.queue, settings.key_prefix, settings.priorities)
    return CountdownDoorbell(opened) if keeps_countdowns else opened


class Process:
    """Create it after a fork, never before: processes must not share connections."""

    def __init__(
        self,
        settings: WorkerSettings,
        registry: Registry,
        worker: str,
        *,
        store: Store | None = None,
        doorbell: Doorbell | None = None,
        observer: AttemptObserver | None = None,
        keeps_countdowns: bool = True,
    ) -> None:
        """`keeps_countdowns`: messages with a countdown stay in this process until they are due. False in a child of a
        prefork pool, which a timeout may kill."""
        failpoints.arm(settings.failpoint)
        self.settings = settings
        self.store = store or open_store(settings.require_database(), **settings.store_options)
        self.doorbell = doorbell or _open_doorbell(settings, keeps_countdowns)
        self.executor = Executor(self.store, settings.lease, worker, settings.served.names)
        self.executor.find_problem = self._problem
        self.executor.known_workflows = registry.by_name
        self.coordinator = Coordinator(settings, self.store, registry, self.doorbell, self.executor, observer)
        self.keeper = Keeper(settings, self.store, self.doorbell, self.coordinator.transitions)
        self.executor.running.when_dropped = self.keeper.look_for_taken
        self.rules = FleetRules(self.store)
        self.coordinator.transitions.options.book = self.rules.current
        self.keeper.rules = self.rules
        self.store.on_grants = self._publish_grants
        self._registry = registry
        self._announced: dict[str, WorkflowDefinition] = {}
        self.revocations = Revocations(
            self.store, self.coordinator.transitions, self.doorbell, settings.near, worker, lambda: self.executor.id
        )

    def _problem(self) -> str | None:
        """One line for each kind of problem."""
        calls = [*self.executor.running.calls.values(), *async_steps.left_behind]
        return "\n".join(one for one in (async_steps.check(), still_running(calls)) if one) or None

    def _publish_grants(self, grants: Sequence[Grant]) -> None:
        """Publish the messages of steps whose tickets a commit has granted."""
        self.doorbell.publish([one.message for one in grants])

    # -- starting -----------------------------------------------------------------------------------------

    def register_workflows(self) -> None:
        """Register the workflows that this process has not registered yet."""
        self.rules.read()
        for workflow in self._registry:
            if self._announced.get(workflow.name) is not workflow:
                self.announce(workflow)
                self._announced[workflow.name] = workflow

    def announce(self, workflow: WorkflowDefinition) -> None:
        """Make this the version of new runs, and its schedule the one that fires."""
        self.register_version(workflow)
        self.store.keep_schedule(workflow.name, workflow.schedule)

    def register_version(self, workflow: WorkflowDefinition) -> None:
        """Make this the version of new runs."""
        self.store.register_workflow(
            workflow.name,
            workflow.plan,
            workflow.input_schema,
            workflow.description,
            workflow.retention,
            workflow.document,
            workflow.limits,
            queue=workflow.whole.queue,
            priority=workflow.whole.priority,
        )

    def wait_for_database(self, seconds: float = 60.0) -> None:
        """Check the schema and register the workflows. A fleet often starts before its database, or while the database
        is read-only after a failover: retry for `seconds`, then raise the error."""
        until = time.monotonic() + seconds
        while True:
            try:
                self._check_schema()
                return self.register_workflows()
            except DatabaseError as error:
                if isinstance(error, ConfigurationError) or time.monotonic() > until:
                    raise
                log.warning("waiting for the database: %s", error)
                time.sleep(1)

    def _check_schema(self) -> None:
        found, wanted = migrations.version(self.store.database), migrations.head()
        if found is None or found < wanted:
            raise ConfigurationError(
                f"The database's schema is at {found or 'nothing'}, this worker needs {wanted}. "
                "Run `rival db upgrade` (it is safe while workers run)."
            )

    # -- stopping -----------------------------------------------------------------------------------------

    def stop_continuing(self) -> None:
        """Let running attempts end, but start no further step in place."""
        self.coordinator.stopping = True

    def take_due_messages(self, take: Callable[[AnyMessage], bool]) -> None:
        """Messages whose countdown ends in this process are handled here if `take` returns True, and published
        otherwise."""
        if isinstance(self.doorbell, CountdownDoorbell):
            self.doorbell.take = take

    def hand_over_countdowns(self) -> None:
        """Publish the countdowns that this process keeps, so that other workers get them."""
        if isinstance(self.doorbell, CountdownDoorbell):
            self.doorbell.hand_over()

    def hand_back(self, executor: str) -> int:
        """Release the attempts of an executor. They start again on other workers, and do not count as attempts."""
        running = self.store.running_on(executor)
        for attempt in running:
            self.coordinator.transitions.hand_back(attempt)
        self.store.delete_executors([executor])
        return len(running)

    def leave_after(self, seconds: float, worker: str) -> None:
        """After the grace period: kill the children, hand back the attempts of this worker, and exit."""

        def leave() -> None:
            given = 0
            try:
                for executor in self.store.executors_on(host_name()):
                    if executor.worker == worker:
                        _kill_child(executor.pid)
                        given += self.hand_back(executor.id)
            except Exception:
                log.exception("could not hand back attempts; their takeover waits for the lease")
            self.hand_over_countdowns()
            log.warning("grace period over: handed back %d attempt(s), exiting", given)
            os._exit(0)

        timer = threading.Timer(seconds, leave)
        timer.daemon = True
        timer.start()

    def close(self) -> None:
        self.doorbell.close()
        self.store.close()
