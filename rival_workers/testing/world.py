"""One worker without Celery: a process's real parts on a SQLite file, whose time and messages are in somebody's hands.

Nothing here waits. Whoever drives it delivers what was rung, and skips to whatever is due next.
"""

from __future__ import annotations

from dataclasses import dataclass

from rival_client.broker.message import AnyMessage, EventMessage
from rival_workers.definition.registry import Registry
from rival_workers.definition.workflow import WorkflowDefinition
from rival_workers.runtime.attempt.invoke import Calling
from rival_workers.runtime.process import Process
from rival_workers.settings import WorkerSettings
from rival_workers.store import open_store
from rival_workers.testing.clock import MOMENT, Clock, VirtualTimers
from rival_workers.testing.delivery import Mailbox, deliver
from rival_workers.testing.errors import LabError
from rival_workers.testing.script import Crash


@dataclass(frozen=True)
class Stop:
    """A time at which the clock stops because something is due."""

    at: float
    #: The keeper must look; otherwise it is a message whose time has come.
    keeper: bool = True


class World:
    def __init__(self, settings: WorkerSettings, clock: Clock, mailbox: Mailbox, calling: Calling) -> None:
        self.settings, self.clock, self.mailbox = settings, clock, mailbox
        self.registry = Registry()
        self.store = open_store(settings.require_database(), clock=clock, durable=False, **settings.store_options)
        self.process = Process(settings, self.registry, "lab", store=self.store, doorbell=mailbox)
        self.coordinator, self.keeper = self.process.coordinator, self.process.keeper
        self._timers = VirtualTimers(clock)
        self.coordinator.calling, self.coordinator.limits.timers = calling, self._timers
        self.keeper.clock = self.coordinator.limits.clock = clock
        #: When the leases of the dead run out.
        self._leases: list[float] = []
        #: True in the middle of an attempt.
        self.busy = False
        self._open()

    def _open(self) -> None:
        self.process.executor.register()
        self._leased_until = self.clock() + self.settings.lease
        # A keeper takes over only after a lease of its own contact with the database: that begins here.
        self.keeper.run_once()

    def add(self, workflow: WorkflowDefinition) -> None:
        self.process.announce(workflow)

    def knows(self, message: AnyMessage) -> bool:
        """False: its worker has parked what this message is about."""
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
            self._die()
        finally:
            self.busy = before

    def _die(self) -> None:
        """Nobody beats for the old executor any more; its worker's successor has an id of its own."""
        self._leases.append(self._leased_until + MOMENT)
        self.process.executor.register()
        self._leased_until = self.clock() + self.settings.lease

    def is_current(self, message: AnyMessage) -> bool:
        """False: a message that will have no effect."""
        if isinstance(message, EventMessage) or message.path is None:
            return False
        seen = self.store.token_of(message.run_id, message.path)
        return seen is not None and seen[1] == message.token

    # -- time ---------------------------------------------------------------------------------------------

    def next_stop(self) -> Stop | None:
        """When something will happen by itself."""
        look = self.store.next_look()
        # What is due is looked at a moment later at the earliest, so that time always moves on.
        looks = [] if look is None else [self.clock() + max(look, MOMENT)]
        stops = [Stop(at) for at in (*looks, *self._leases)]
        if self.mailbox.next_at is not None:
            stops.append(Stop(self.mailbox.next_at, keeper=False))
        return min(stops, key=lambda stop: (stop.at, not stop.keeper), default=None)

    def skip_to(self, stop: Stop) -> None:
        """Time passes, and with it the timeouts of attempts."""
        while (timer := self._timers.next) is not None and timer <= stop.at:
            self._pass_until(timer)
            self._timers.go_off()
        self._pass_until(stop.at)
        if stop.keeper:
            self.keeper.run_once()
            self._leases = [lease for lease in self._leases if lease > self.clock()]

    def let_pass(self, seconds: float | None) -> None:
        """In the middle of an attempt. None: until it times out; nobody waits for it any longer than that."""
        timeout = self._timers.next
        if seconds is None and timeout is None:
            raise LabError("The step has no timeout, so it cannot time out. Give it one: step(…, timeout=60).")
        end = timeout if seconds is None else self.clock() + seconds
        self._pass_until(min(at for at in (end, timeout) if at is not None))
        self._timers.go_off()

    def _pass_until(self, at: float) -> None:
        """The living have been beating all the time: all those beats are made as one."""
        lease = self.settings.lease
        self.store.beat(self.process.executor.id, max(0.0, at - self.clock()) + lease)
        self.clock.set(at)
        self._leased_until = self.clock() + lease

    def close(self) -> None:
        self.process.executor.stop()
        self.process.close()
