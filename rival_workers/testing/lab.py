"""A lab: runs workflows to their end in the test's own process, on a clock that skips. Store, coordinator, keeper and
decisions are those of a fleet; only time and delivery are the lab's.
"""

from __future__ import annotations

import datetime as dt
import time
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Any, Self

from pydantic import BaseModel

from rival_client.api.async_client import AsyncRival
from rival_client.broker.message import AnyMessage, EventMessage
from rival_workers.definition.registry import default_registry
from rival_workers.definition.steps import seconds as in_seconds
from rival_workers.settings import WorkerSettings
from rival_workers.testing.client import LabAsyncRival, LabRival
from rival_workers.testing.clock import Clock
from rival_workers.testing.delivery import Mailbox
from rival_workers.testing.errors import LabError, NeverEnds
from rival_workers.testing.registering import register
from rival_workers.testing.run import LabRun
from rival_workers.testing.script import Where
from rival_workers.testing.staging import Duration, Staging
from rival_workers.testing.template import migrated
from rival_workers.testing.world import Stop, World

#: A run that is not over after this time, or after so many messages, is held to be endless.
HORIZON_DAYS = 3650
HORIZON = HORIZON_DAYS * 86_400.0
MOST_MESSAGES = 100_000

#: A continuation that no test outlasts.
_DAY = 86_400.0


class Lab(Staging):
    """Use it as a context manager, or through the `rival_lab` fixture.

    `continuation=False`: every attempt is a message. `shuffle=seed`: messages come in any order. `duplicate=True`: each
    comes twice. `start`: what the clock shows at first. `settings` are those of a worker: lease=…, retention=….
    """

    def __init__(
        self,
        *,
        continuation: bool = True,
        shuffle: int | None = None,
        duplicate: bool = False,
        start: dt.datetime | None = None,
        **settings: Any,
    ) -> None:
        super().__init__()
        # Wall time must not decide what a test sees: a message goes on in place always, or never.
        settings.setdefault("continuation_budget", _DAY if continuation else 0.0)
        own = WorkerSettings(**settings)
        self._directory = TemporaryDirectory(prefix="rival-lab-")
        file = Path(self._directory.name) / "lab.db"
        file.write_bytes(migrated())
        self._clock = Clock(start.timestamp() if start else time.time())
        mailbox = Mailbox(self._clock, shuffle=shuffle, duplicate=duplicate)
        self._world = World(own.with_(database_url=f"sqlite:///{file}"), self._clock, mailbox, self._call)
        #: A real client on the lab's database. Its `wait` brings the run to its end.
        self.rival = LabRival(self._world, self._wait, self._adopt)

    @cached_property
    def async_rival(self) -> AsyncRival:
        """The same for code that awaits."""
        return LabAsyncRival(sync=self.rival)

    @property
    def now(self) -> dt.datetime:
        """What the lab's clock shows."""
        return self._clock.now

    # -- workflows ----------------------------------------------------------------------------------------

    def register(self, what: Any, *, name: str | None = None, **options: Any) -> None:
        """A file, a directory, a module, a builder, a workflow; or a list of steps with a name, and with input=… and
        on_error=… if it has them. Workflows that were registered as usual need not be registered again.
        """
        for workflow in register(self._world.registry, what, name, options):
            self._world.add(workflow)

    def _adopt(self, name: str) -> None:
        if name not in self._world.registry and name in default_registry:
            self.register(next(workflow for workflow in default_registry if workflow.name == name))
        self._script.check(self._world.registry)

    # -- runs ---------------------------------------------------------------------------------------------

    def run(self, workflow: str, input: Any = None, *, run_id: str | None = None) -> LabRun:
        """Start a run and bring it to its end, however long that takes by the lab's clock."""
        return self.start(workflow, input, run_id=run_id).finish()

    def start(self, workflow: str, input: Any = None, *, run_id: str | None = None) -> LabRun:
        """Start a run; nothing happens to it before the lab is told to go on."""
        return LabRun(self, self.rival.run(workflow, input, run_id).run_id)

    def send_event(self, topic: str | BaseModel, payload: Any = None, **options: Any) -> None:
        """As a producer sends it; it comes to whoever waits when the lab goes on."""
        self.rival.send_event(topic, payload, **options)

    def get(self, run_id: str) -> LabRun:
        """A run that the code under test has started."""
        return LabRun(self, self.rival.state(run_id).run_id)

    def finish(self, run: LabRun) -> None:
        """Bring a run to its end. NeverEnds, with a picture of it, when it has none."""
        if not self._drive(run.run_id, HORIZON):
            nothing = self._world.next_stop() is None
            why = "Nothing is due, and no message is under way" if nothing else f"{HORIZON_DAYS:,} days were not enough"
            raise NeverEnds(f"{why}.\n{run}")

    def advance(self, seconds: Duration) -> None:
        """Let time pass, and all that is due in it happen. In the middle of a step: the step takes so long."""
        if self._world.busy:
            return self._world.let_pass(in_seconds(seconds))
        until = self._clock() + in_seconds(seconds)
        # A millisecond more: the moments that attempts take must not put off what is due in an hour.
        while self._deliver_or_skip(self._world.mailbox.take(), until + 0.001):
            pass
        return self._world.skip_to(Stop(until))

    def run_until(self, step: str, *, workflow: str | None = None) -> None:
        """Go on until an attempt of that step is what comes next; whatever led there has happened."""
        where, until = Where(step, workflow), self._clock() + HORIZON
        # A message for each attempt from here on, so that one can be stopped at.
        self._world.coordinator.stopping = True
        try:
            for _ in range(MOST_MESSAGES):
                message = self._world.mailbox.take()
                if message is not None and self._is_about(message, where):
                    return self._world.mailbox.put_back(message)
                if not self._deliver_or_skip(message, until):
                    break
        finally:
            self._world.coordinator.stopping = False
        raise LabError(f"No run has come to step {step!r}, and nothing more will happen by itself.")

    def _is_about(self, message: AnyMessage, where: Where) -> bool:
        if isinstance(message, EventMessage) or message.path is None:
            return False
        return where.means(message.workflow, message.path) and self._world.is_current(message)

    # -- going on -----------------------------------------------------------------------------------------

    def _wait(self, run_id: str, timeout: float | None) -> bool:
        """As a client waits: False when its time is over and the run is not."""
        until = self._clock() + (timeout or 0.0)
        if timeout is None:
            self.finish(LabRun(self, run_id))
        elif not self._drive(run_id, timeout):
            self._world.skip_to(Stop(until))
            return False
        return True

    def _drive(self, run_id: str, within: float) -> bool:
        """Go on until the run has ended; False: it has not within that time."""
        until = self._clock() + within
        for _ in range(MOST_MESSAGES):
            if self.rival.has_ended(run_id):
                return True
            message = self._world.mailbox.take()
            if not self._deliver_or_skip(message, until):
                return False
            if message is not None and message.run_id == run_id and not self._world.knows(message):
                raise NeverEnds(f"This lab does not have its workflow at its version.\n{LabRun(self, run_id)}")
        raise NeverEnds(f"It was not over after {MOST_MESSAGES:,} messages.\n{LabRun(self, run_id)}")

    def _deliver_or_skip(self, message: AnyMessage | None, until: float) -> bool:
        """Deliver the message, or else skip to what is due next; False: nothing is before that time."""
        if message is not None:
            self._world.deliver(message)
            self._own_up()
            return True
        stop = self._world.next_stop()
        if stop is None or stop.at > until:
            return False
        self._world.skip_to(stop)
        return True

    # -- closing ------------------------------------------------------------------------------------------

    def close(self) -> None:
        self._world.close()
        self._directory.cleanup()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.close()
