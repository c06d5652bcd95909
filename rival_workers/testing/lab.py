"""A lab: runs workflows to their end in the test's own process, on a virtual clock. Store, coordinator, keeper and
decisions are those of a fleet; the lab replaces only the clock and the broker.
"""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType, TracebackType
from typing import Any, Self, Unpack

from pydantic import BaseModel

from rival_client.api.async_client import AsyncRival
from rival_client.broker.message import AnyMessage, EventMessage
from rival_client.model import statuses
from rival_client.model.checks import amounts
from rival_client.model.starts.queues import ServedQueues
from rival_client.model.starts.run_options import RunOptions
from rival_workers.definition.default_registry import default_registry
from rival_workers.definition.define import define_workflow
from rival_workers.definition.files import register_paths
from rival_workers.definition.flows import Flow
from rival_workers.definition.registry import Registry
from rival_workers.definition.workflow import WorkflowDefinition
from rival_workers.definition.workflow_references import Loaded, References
from rival_workers.settings import WorkerSettings
from rival_workers.testing.broker import LabBroker
from rival_workers.testing.clock import Clock
from rival_workers.testing.errors import LabError, NeverEnds
from rival_workers.testing.run import LabRun
from rival_workers.testing.script import Duration, StepControls
from rival_workers.testing.step_pattern import StepPattern, flows_of
from rival_workers.testing.world import LabAsyncRival, LabRival, Stop, World, migrated

#: A run that has not ended after this time, or after this many messages, counts as endless.
HORIZON_DAYS = 3650
HORIZON = HORIZON_DAYS * 86_400.0
MAX_MESSAGES = 100_000

#: A continuation budget that no test uses up.
_DAY = 86_400.0


class LabSettings(WorkerSettings):
    """A lab is the whole fleet: without `queues=…` it serves all queues."""

    @property
    def served(self) -> ServedQueues:
        return super().served if self.queues else ServedQueues(default=self.queue, every=True)


class Lab(StepControls):
    """Use it as a context manager, or through the `rival_lab` fixture.

    `continuation=False`: every attempt has its own message. `shuffle=seed`: messages arrive in random order.
    `duplicate=True`: each arrives twice. `start`: the clock's first time. `settings` are those of a worker: lease=…,
    retention=….
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
        # Wall-clock time must not change what a test observes: a message continues with the next step always, or never.
        settings.setdefault("continuation_budget", _DAY if continuation else 0.0)
        own = LabSettings.of(settings)
        if start is not None and not isinstance(start, dt.datetime):
            raise LabError(f"start={start!r} is not a datetime: give datetime(2024, 5, 1, tzinfo=UTC).")
        self._directory = TemporaryDirectory(prefix="rival-lab-")
        file = Path(self._directory.name) / "lab.db"
        file.write_bytes(migrated())
        self._clock = Clock(start.timestamp() if start else time.time())
        broker = LabBroker(self._clock, shuffle=shuffle, duplicate=duplicate)
        self._world = World(own.with_(database_url=f"sqlite:///{file}"), self._clock, broker, self._call)
        #: A real client on the lab's database. Its `wait` runs the run to its end.
        self.rival = LabRival(self._world, self._wait, self._register_default)
        #: Workflows of the default registry whose schedules fire.
        self._scheduled: set[str] = set()

    @cached_property
    def async_rival(self) -> AsyncRival:
        """The same for asyncio code."""
        return LabAsyncRival(sync=self.rival)

    @property
    def now(self) -> dt.datetime:
        """The time of the lab's clock."""
        return self._clock.now

    # -- workflows ----------------------------------------------------------------------------------------

    def register(self, what: Any, *, name: str | None = None, **options: Any) -> None:
        """Register a file, a directory, a module, a builder or a workflow; or a list of steps with a name, and with
        input=… and on_error=… if it has them. Workflows in the default registry need not be registered again.
        """
        for workflow in _register(self._world.registry, what, name, options):
            self._world.add(workflow)

    def _register_default(self, name: str | None) -> None:
        """Take the workflow of this name, or all, from the default registry."""
        started = None if name is None else default_registry.newest(name)
        if started is not None:
            self._world.add_default(started, with_schedule=True)
        own = None if name is None else self._world.registry.newest(name)
        if name is None or (own is not None and flows_of(own)):
            # A flow can call each of them by its name.
            for workflow in default_registry:
                self._world.add_default(workflow, with_schedule=False)
        if own is not None:
            self._script.check(list(self._world.registry), self._world.registry.shown(own))

    def _keep_default_schedules(self) -> None:
        """Those of the default registry. Not before the test lets time pass itself: a run that it starts may take years
        by the lab's clock, and it does not expect runs of other workflows then."""
        for workflow in default_registry:
            if workflow.schedule is not None and workflow.name not in self._scheduled:
                self._scheduled.add(workflow.name)
                self._world.add_default(workflow, with_schedule=True)

    # -- runs ---------------------------------------------------------------------------------------------

    def run(
        self, workflow: str, input: Any = None, *, run_id: str | None = None, **options: Unpack[RunOptions]
    ) -> LabRun:
        """Start a run and run it to its end, however long that takes by the lab's clock."""
        return self.start(workflow, input, run_id=run_id, **options).finish()

    def start(
        self, workflow: str, input: Any = None, *, run_id: str | None = None, **options: Unpack[RunOptions]
    ) -> LabRun:
        """Start a run. Nothing happens to it before `finish`, `advance` or `run_until`."""
        return LabRun(self, self.rival.run(workflow, input, run_id, **options).run_id)

    def send_event(self, topic: str | BaseModel, payload: Any = None, **options: Any) -> None:
        """Send an event like a producer does. Waiting steps get it when the lab continues."""
        self.rival.send_event(topic, payload, **options)

    def get(self, run_id: str) -> LabRun:
        """A run that the code under test started."""
        return LabRun(self, self.rival.state(run_id).run_id)

    def _definition_of(self, workflow: str, version: str) -> WorkflowDefinition | None:
        """None: this lab does not have it."""
        return self._world.registry.find(workflow, version)

    def finish(self, run: LabRun) -> None:
        """Run it to its end. Raises NeverEnds, with a description of the run, if it does not end."""
        if not self._drive(run.run_id, HORIZON):
            nothing = self._world.next_stop() is None
            why = "Nothing is due, and no message is queued" if nothing else f"{HORIZON_DAYS:,} days were not enough"
            raise NeverEnds(f"{why}.\n{run}")
        self._check_called(run.state.workflow)

    def _check_called(self, name: str) -> None:
        """A run of this workflow has ended."""
        workflow = self._world.registry.newest(name)
        if workflow is not None and flows_of(workflow):
            self._script.check_called(list(self._world.registry), self._world.registry.shown(workflow))

    def _check_if_ended(self) -> None:
        """While a run is open, a flow may still call a step whose name its code does not mention."""
        found = self.rival.runs()
        if all(run.status in statuses.RUN_TERMINAL for run in found):
            for name in dict.fromkeys(run.workflow for run in found):
                self._check_called(name)

    def advance(self, seconds: Duration) -> None:
        """Let time pass and do everything that becomes due. In the middle of a step: the step takes this long."""
        duration = amounts.seconds("seconds", seconds)
        if self._world.busy:
            return self._world.pass_time(duration)
        self._keep_default_schedules()
        until = self._clock() + duration
        # A millisecond more: each attempt takes a microsecond, which must not delay what is due at the end.
        while self._deliver_or_skip(self._world.broker.take(), until + 0.001):
            pass
        self._world.skip_to(Stop(until))
        return self._check_if_ended()

    def run_until(self, step: str, *, workflow: str | None = None) -> None:
        """Continue until the next message is an attempt of that step."""
        pattern, until = StepPattern(step, workflow), self._clock() + HORIZON
        # From here on every attempt has its own message, so that the lab can stop before one.
        self._world.coordinator.stopping = True
        try:
            for _ in range(MAX_MESSAGES):
                message = self._world.broker.take()
                if message is not None and self._is_about(message, pattern):
                    return self._world.broker.put_back(message)
                if not self._deliver_or_skip(message, until):
                    break
        finally:
            self._world.coordinator.stopping = False
        raise LabError(f"No run has reached step {step!r}, and nothing else is due.")

    def _is_about(self, message: AnyMessage, pattern: StepPattern) -> bool:
        if isinstance(message, EventMessage) or message.path is None:
            return False
        return pattern.matches(message.workflow, message.path) and self._world.is_current(message)

    # -- continuing ---------------------------------------------------------------------------------------

    def _wait(self, run_id: str, timeout: float | None) -> bool:
        """A client's wait: returns False on timeout."""
        until = self._clock() + (timeout or 0.0)
        if timeout is None:
            self.finish(LabRun(self, run_id))
        elif not self._drive(run_id, timeout):
            self._world.skip_to(Stop(until))
            return False
        else:
            self._check_called(self.rival.state(run_id).workflow)
        return True

    def _drive(self, run_id: str, within: float) -> bool:
        """Continue until the run has ended; returns False if that takes longer than `within` seconds."""
        until = self._clock() + within
        for _ in range(MAX_MESSAGES):
            if self.rival.has_ended(run_id):
                return True
            message = self._world.broker.take()
            if not self._deliver_or_skip(message, until):
                return False
            if message is not None and message.run_id == run_id and not self._world.knows(message):
                raise NeverEnds(f"This lab does not have its workflow at its version.\n{LabRun(self, run_id)}")
        raise NeverEnds(f"It has not ended after {MAX_MESSAGES:,} messages.\n{LabRun(self, run_id)}")

    def _deliver_or_skip(self, message: AnyMessage | None, until: float) -> bool:
        """Deliver the message or, without one, skip to what is due next. Returns False if nothing is due by `until`."""
        if message is not None:
            self._world.deliver(message)
            self._raise_mistake()
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


# -- registration -----------------------------------------------------------------------------------------


def _register(registry: Registry, what: Any, name: str | None, options: dict[str, Any]) -> list[WorkflowDefinition]:
    if isinstance(what, Sequence) and not isinstance(what, str):
        return [registry.add(_from_steps(registry, what, name, options))]
    if name is not None or options:
        raise LabError("A name and options are for a list of steps; a workflow, builder or file has its own.")
    if isinstance(what, WorkflowDefinition):
        return [registry.add(what)]
    if isinstance(what, Flow) and what.definition is not None:
        return [registry.add(what.definition)]
    if hasattr(what, "build"):
        return [registry.add(what.build(registry))]
    if isinstance(what, ModuleType):
        return [registry.add(_from_module(registry, what))]
    if isinstance(what, str | Path):
        return register_paths([what], registry)
    raise LabError(f"{what!r} is not a workflow: give a file, a directory, a module, a builder or a list of steps.")


def _from_steps(
    registry: Registry, steps: Sequence[Any], name: str | None, options: dict[str, Any]
) -> WorkflowDefinition:
    if name is None:
        raise LabError("A list of steps needs a name: lab.register([first, second], name='order').")
    return define_workflow(name, steps, resolve=References(registry), **options)


def _from_module(registry: Registry, module: ModuleType) -> WorkflowDefinition:
    """Uses the module as it is, so that what a test has patched in it stays patched."""
    file = Path(module.__file__ or module.__name__)
    return References(registry, Loaded({file: module})).define_file(file)
