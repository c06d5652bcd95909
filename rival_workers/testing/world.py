"""One worker without Celery and its clients: the real parts of a process on a SQLite file, with a virtual clock.

Nothing here waits. The lab delivers published messages, and skips the clock to what is due next.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from rival_client.api.async_client import AsyncRival
from rival_client.api.client import Rival
from rival_client.broker.message import AnyMessage, EventMessage
from rival_client.broker.wait_schedule import DEFAULT_POLL_INTERVAL, DEFAULT_TIMEOUT
from rival_client.db.database import Database
from rival_client.errors import WaitTimeout
from rival_client.model.checks import amounts
from rival_client.model.inputs import InputValidator
from rival_client.model.policies.rulebook import FleetRule
from rival_client.model.records import RunResult
from rival_client.model.starts.run_ids import named_run
from rival_client.model.statuses import RUN_TERMINAL
from rival_client.model.workflow_info import WorkflowInfo
from rival_workers.definition.registry import Registry
from rival_workers.definition.workflow import WorkflowDefinition
from rival_workers.runtime.attempt.invoke import Calling
from rival_workers.runtime.process import Process
from rival_workers.settings import WorkerSettings
from rival_workers.store import migrations, open_store
from rival_workers.testing.broker import LabBroker, deliver
from rival_workers.testing.clock import MOMENT, Clock, VirtualTimers
from rival_workers.testing.errors import LabError
from rival_workers.testing.script import Crash


@dataclass(frozen=True)
class Stop:
    """A time at which the clock stops because something is due."""

    at: float
    #: The keeper must run; otherwise a message is due.
    keeper: bool = True


class LabRegistry(Registry):
    """Workflows that a test has registered, and those from the default registry, which they replace by name."""

    def __init__(self) -> None:
        super().__init__()
        self._from_default: set[str] = set()

    def add_default(self, workflow: WorkflowDefinition) -> bool:
        """False: there is one of its name."""
        if workflow.name in self:
            return False
        self._from_default.add(workflow.name)
        self.renew(workflow)
        return True

    def add(
        self, workflow: WorkflowDefinition, *, within_another: bool = False, replace: bool = False
    ) -> WorkflowDefinition:
        if workflow.name in self._from_default:
            self._from_default.discard(workflow.name)
            # Its versions stay: it may have runs.
            del self._newest[workflow.name]
        return super().add(workflow, within_another=within_another, replace=replace)

    def shown(self, started: WorkflowDefinition) -> list[WorkflowDefinition]:
        """The workflows that the test has registered, and the one that it starts."""
        return [workflow for workflow in self if workflow is started or workflow.name not in self._from_default]


class World:
    def __init__(self, settings: WorkerSettings, clock: Clock, broker: LabBroker, calling: Calling) -> None:
        self.settings, self.clock, self.broker = settings, clock, broker
        self.registry = LabRegistry()
        self.store = open_store(settings.require_database(), clock=clock, durable=False, **settings.store_options)
        self.process = Process(settings, self.registry, "lab", store=self.store, doorbell=broker)
        self.coordinator, self.keeper = self.process.coordinator, self.process.keeper
        self._timers = VirtualTimers(clock)
        self.coordinator.calling, self.coordinator.limits.timers = calling, self._timers
        self.coordinator.limits.wall_clock = clock
        self.keeper.clock = self.coordinator.limits.clock = self.coordinator.transitions.clock = clock
        #: When the leases of crashed executors expire.
        self._leases: list[float] = []
        #: True in the middle of an attempt.
        self.busy = False
        self._open()

    def _open(self) -> None:
        self.process.executor.register()
        self._leased_until = self.clock() + self.settings.lease
        # A keeper takes over attempts only after it has reached the database for a whole lease: that begins here.
        self.keeper.run_once()

    def add(self, workflow: WorkflowDefinition) -> None:
        self.process.announce(workflow)

    def add_default(self, workflow: WorkflowDefinition, *, with_schedule: bool) -> None:
        """One of the default registry, unless a test has registered another one of its name."""
        if self.registry.add_default(workflow):
            self.process.register_version(workflow)
        if with_schedule and self.registry.newest(workflow.name) is workflow:
            self.store.keep_schedule(workflow.name, workflow.schedule)

    def knows(self, message: AnyMessage) -> bool:
        """False: the worker parks the run or step of this message."""
        if isinstance(message, EventMessage):
            return True
        workflow = self.registry.find(message.workflow, message.version)
        return workflow is not None and (message.path is None or workflow.call_at(message.path) is not None)

    # -- messages -----------------------------------------------------------------------------------------

    def deliver(self, message: AnyMessage) -> None:
        before, self.busy = self.busy, True
        try:
            deliver(self.coordinator, message)
        except Crash:
            self._crash_worker()
        finally:
            self.busy = before

    def _crash_worker(self) -> None:
        """The old executor stops beating; the next worker process registers with a new id."""
        self._leases.append(self._leased_until + MOMENT)
        self.process.executor.register()
        self._leased_until = self.clock() + self.settings.lease

    def is_current(self, message: AnyMessage) -> bool:
        """False: the message will have no effect."""
        if isinstance(message, EventMessage) or message.path is None:
            return False
        seen = self.store.token_of(message.run_id, message.path)
        return seen is not None and seen[1] == message.token

    # -- time ---------------------------------------------------------------------------------------------

    def next_stop(self) -> Stop | None:
        """When the next message or row is due."""
        look = self.store.next_look()
        # A due row is processed a moment later at the earliest, so that time always advances.
        looks = [] if look is None else [self.clock() + max(look, MOMENT)]
        stops = [Stop(at) for at in (*looks, *self._leases)]
        if self.broker.next_at is not None:
            stops.append(Stop(self.broker.next_at, keeper=False))
        return min(stops, key=lambda stop: (stop.at, not stop.keeper), default=None)

    def skip_to(self, stop: Stop) -> None:
        """Moves the clock, and fires the timeouts of attempts on the way."""
        while (timer := self._timers.next) is not None and timer <= stop.at:
            self._pass_until(timer)
            self._timers.fire()
        self._pass_until(stop.at)
        if self.process.rules.current().rules:
            self.process.rules.read()  # some may have expired
        if stop.keeper:
            self.keeper.run_once()
            self._leases = [lease for lease in self._leases if lease > self.clock()]

    def pass_time(self, seconds: float | None) -> None:
        """In the middle of an attempt. None: until it times out, since no caller waits longer than that."""
        timeout = self._timers.next
        if seconds is None and timeout is None:
            raise LabError("The step has no timeout, so it cannot time out. Give it one: step(…, timeout=60).")
        end = timeout if seconds is None else self.clock() + seconds
        self._pass_until(min(at for at in (end, timeout) if at is not None))
        self._timers.fire()

    def _pass_until(self, at: float) -> None:
        """The live executor beats all the time: one beat stands for all of them."""
        lease = self.settings.lease
        self.store.beat(self.process.executor.id, max(0.0, at - self.clock()) + lease)
        self.clock.set(at)
        self._leased_until = self.clock() + lease

    def close(self) -> None:
        self.process.executor.stop()
        self.process.close()


@cache
def migrated() -> bytes:
    """An empty SQLite database with Rival's tables: migrated once per process, then copied for each lab."""
    with TemporaryDirectory(prefix="rival-lab-") as directory:
        file = Path(directory) / "template.db"
        database = Database(f"sqlite:///{file}", durable=False)
        migrations.upgrade(database)
        # Closing the last connection writes everything into the file.
        database.dispose()
        return file.read_bytes()


#: Registers the workflow of this name, or all, from the default registry.
RegisterDefault = Callable[[str | None], None]
#: Continues until the run has ended, at most this many seconds of the lab's time; returns whether it has ended.
Wait = Callable[[str, float | None], bool]


class LabRival(Rival):
    """A real client, but `wait` runs the run to its end, and its timeout is virtual."""

    def __init__(self, world: World, wait: Wait, register_default: RegisterDefault) -> None:
        super().__init__(settings=world.settings, database=world.store.database, doorbell=world.broker)
        self._wait_for, self._register_default = wait, register_default
        self._fleet_rules = world.process.rules

    def set_policy(self, *args: Any, **keywords: Any) -> FleetRule:
        """In force at once: a test does not wait for the keeper."""
        made = super().set_policy(*args, **keywords)
        self._fleet_rules.read()
        return made

    def remove_policy(self, rule_id: int) -> bool:
        removed = super().remove_policy(rule_id)
        self._fleet_rules.read()
        return removed

    def workflows(self) -> list[WorkflowInfo]:
        self._register_default(None)
        return super().workflows()

    def _workflow(self, name: str) -> WorkflowInfo:
        self._register_default(name)
        return super()._workflow(name)

    def _validator(self, workflow: str) -> InputValidator:
        self._register_default(workflow)
        return super()._validator(workflow)

    def wait(
        self,
        workflow: str | None = None,
        run_id: str | None = None,
        timeout: float | None = DEFAULT_TIMEOUT,
        poll_interval: float = DEFAULT_POLL_INTERVAL,
    ) -> RunResult:
        workflow, run_id = named_run(workflow, run_id)
        timeout = amounts.timeout(timeout)
        name, _ = self._status(workflow, run_id)
        if not self._wait_for(run_id, timeout):
            raise WaitTimeout(name, run_id, timeout or 0.0, self._status(name, run_id)[1])
        return self.result(run_id)

    def has_ended(self, run_id: str) -> bool:
        """Also True when retention has deleted it."""
        found = self._read_status(run_id)
        return found is None or found[1] in RUN_TERMINAL


class LabAsyncRival(AsyncRival):
    """No call blocks, so no call needs a thread."""

    async def _call(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    async def wait(
        self,
        workflow: str | None = None,
        run_id: str | None = None,
        timeout: float | None = DEFAULT_TIMEOUT,
        poll_interval: float = DEFAULT_POLL_INTERVAL,
    ) -> RunResult:
        return self._rival.wait(workflow, run_id, timeout, poll_interval)
