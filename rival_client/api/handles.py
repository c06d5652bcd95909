"""Handles of one run: what `run` returns, and `rival.get(workflow).get_or_create(run_id)`. They know the run's id and
pass each call on to the client.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypeVar, Unpack

from rival_client.broker.wait_schedule import DEFAULT_POLL_INTERVAL, DEFAULT_TIMEOUT
from rival_client.errors import RivalError
from rival_client.model import arguments
from rival_client.model.records import Run, RunResult, RunState
from rival_client.model.run_entries import HistoryEntry, LogEntry
from rival_client.model.run_options import RunOptions
from rival_client.model.workflow_info import WorkflowInfo

if TYPE_CHECKING:
    from rival_client.api.async_client import AsyncRival
    from rival_client.api.client import Rival

C = TypeVar("C")
StartedStatus = Literal["started", "running", "skipped", "gathered"]


class RunHandle:
    """One run by its id."""

    def __init__(self, rival: Rival | None, run_id: str) -> None:
        self._client, self.run_id = rival, run_id

    @property
    def _rival(self) -> Rival:
        return _required(self._client, self.run_id)

    def wait(self, timeout: float | None = DEFAULT_TIMEOUT, poll_interval: float = DEFAULT_POLL_INTERVAL) -> RunResult:
        """Block until the run has ended; how it ended. WaitTimeout after `timeout` seconds (None: never)."""
        return self._rival.wait(run_id=self.run_id, timeout=timeout, poll_interval=poll_interval)

    def get(self, timeout: float | None = DEFAULT_TIMEOUT, poll_interval: float = DEFAULT_POLL_INTERVAL) -> Any:
        """Block until the run has ended; its result. RunFailed or RunCancelled when there is none."""
        return self.wait(timeout, poll_interval).unwrap()

    def result(self) -> RunResult:
        """How the run ended; RunNotEnded when it has not."""
        return self._rival.result(self.run_id)

    def state(self) -> RunState:
        """The run and its steps as they are now."""
        return self._rival.state(self.run_id)

    def history(self) -> list[HistoryEntry]:
        return self._rival.history(self.run_id)

    def logs(self) -> list[LogEntry]:
        """What its steps have logged, the oldest first: the first thousand entries."""
        return self._rival.logs(self.run_id)

    def cancel(self, *, by: str = "client") -> bool:
        """Cancel the run. False when it had ended already."""
        return self._rival.cancel(self.run_id, by=by)


class AsyncRunHandle:
    """The same, awaitable."""

    def __init__(self, rival: AsyncRival | None, run_id: str) -> None:
        self._client, self.run_id = rival, run_id

    @property
    def _rival(self) -> AsyncRival:
        return _required(self._client, self.run_id)

    async def wait(
        self, timeout: float | None = DEFAULT_TIMEOUT, poll_interval: float = DEFAULT_POLL_INTERVAL
    ) -> RunResult:
        return await self._rival.wait(run_id=self.run_id, timeout=timeout, poll_interval=poll_interval)

    async def get(self, timeout: float | None = DEFAULT_TIMEOUT, poll_interval: float = DEFAULT_POLL_INTERVAL) -> Any:
        return (await self.wait(timeout, poll_interval)).unwrap()

    async def result(self) -> RunResult:
        return await self._rival.result(self.run_id)

    async def state(self) -> RunState:
        return await self._rival.state(self.run_id)

    async def history(self) -> list[HistoryEntry]:
        return await self._rival.history(self.run_id)

    async def logs(self) -> list[LogEntry]:
        return await self._rival.logs(self.run_id)

    async def cancel(self, *, by: str = "client") -> bool:
        return await self._rival.cancel(self.run_id, by=by)


def _required(client: C | None, run_id: str) -> C:
    if client is None:
        raise RivalError(f"This handle of run {run_id!r} has no client: use the one that `run` has returned.")
    return client


class _HowItStarted:
    """`status` is what `run` has found: "started"; "running" when the run had been started before, or has the
    singleton place; "gathered" when the start became part of a run that has not begun; "skipped" when the singleton
    place is taken: then this run does not exist, and `instead_of` names the one that has the place. It does not change;
    `state()` has the run's status.
    """

    run_id: str
    status: StartedStatus
    instead_of: str | None = None

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _HowItStarted):
            return NotImplemented
        return (self.run_id, self.status) == (other.run_id, other.status)

    def __hash__(self) -> int:
        return hash((self.run_id, self.status))

    def __repr__(self) -> str:
        return f"{type(self).__name__}(run_id={self.run_id!r}, status={self.status!r})"


class Started(_HowItStarted, RunHandle):
    """What `run` gives back at once: `rival.run("orders", {...}).wait()`."""

    def __init__(
        self, run_id: str, status: StartedStatus, rival: Rival | None = None, *, instead_of: str | None = None
    ) -> None:
        super().__init__(rival, run_id)
        self.status, self.instead_of = status, instead_of


class AsyncStarted(_HowItStarted, AsyncRunHandle):
    """The same for `AsyncRival`: `await (await rival.run("orders", {...})).wait()`."""

    def __init__(
        self, run_id: str, status: StartedStatus, rival: AsyncRival | None = None, *, instead_of: str | None = None
    ) -> None:
        super().__init__(rival, run_id)
        self.status, self.instead_of = status, instead_of


class Workflow:
    def __init__(self, rival: Rival, name: str) -> None:
        self._rival, self.name = rival, arguments.name("workflow", name)

    def get_or_create(self, run_id: str) -> Instance:
        """A handle; the run itself is created by the handle's `run`."""
        return Instance(self._rival, self.name, run_id)


class Instance(RunHandle):
    """One run by its id, started or not."""

    def __init__(self, rival: Rival, workflow: str, run_id: str) -> None:
        super().__init__(rival, arguments.run_id(run_id))
        self.workflow = workflow

    def run(self, input: Any = None, **options: Unpack[RunOptions]) -> Started:
        return self._rival.run(self.workflow, input, self.run_id, **options)

    def wait(self, timeout: float | None = DEFAULT_TIMEOUT, poll_interval: float = DEFAULT_POLL_INTERVAL) -> RunResult:
        return self._rival.wait(self.workflow, self.run_id, timeout, poll_interval)

    def get_state(self) -> RunState:
        return self.state()


class AsyncWorkflow:
    def __init__(self, rival: AsyncRival, name: str) -> None:
        self._rival, self.name = rival, arguments.name("workflow", name)

    def get_or_create(self, run_id: str) -> AsyncInstance:
        return AsyncInstance(self._rival, self.name, run_id)


class AsyncInstance(AsyncRunHandle):
    def __init__(self, rival: AsyncRival, workflow: str, run_id: str) -> None:
        super().__init__(rival, arguments.run_id(run_id))
        self.workflow = workflow

    async def run(self, input: Any = None, **options: Unpack[RunOptions]) -> AsyncStarted:
        return await self._rival.run(self.workflow, input, self.run_id, **options)

    async def wait(
        self, timeout: float | None = DEFAULT_TIMEOUT, poll_interval: float = DEFAULT_POLL_INTERVAL
    ) -> RunResult:
        return await self._rival.wait(self.workflow, self.run_id, timeout, poll_interval)

    async def get_state(self) -> RunState:
        return await self.state()


# -- the registry -----------------------------------------------------------------------------------------

#: The classes below have a `list` of their own.
Runs = list[Run]
Workflows = list[WorkflowInfo]


class WorkflowRegistry:
    def __init__(self, rival: Rival) -> None:
        self._rival = rival

    def list(self) -> Workflows:
        """Every workflow at the version that new runs take: name, description, input schema, step count."""
        return self._rival.workflows()

    def get(self, name: str) -> WorkflowInfo:
        """UnknownWorkflow when no worker has registered it."""
        return self._rival._workflow(name)

    def launch(self, name: str, input: Any = None, **options: Unpack[RunOptions]) -> Started:
        """Start a run under a new id."""
        return self._rival.run(arguments.name("name", name), input, **options)

    def get_run(self, run_id: str) -> Instance:
        """A handle of a run that exists; RunNotFound otherwise."""
        return Instance(self._rival, self._rival._workflow_of(run_id), run_id)

    def active_runs(self, workflow: str | None = None, *, before: Run | None = None, limit: int = 50) -> Runs:
        return self._rival.active_runs(workflow, before=before, limit=limit)

    def cancel(self, run_id: str) -> bool:
        return self._rival.cancel(run_id)


class AsyncWorkflowRegistry:
    """The same, awaitable."""

    def __init__(self, rival: AsyncRival, sync: Rival) -> None:
        self._rival, self._sync = rival, sync

    async def list(self) -> Workflows:
        return await self._rival.workflows()

    async def get(self, name: str) -> WorkflowInfo:
        return await self._rival._call(self._sync._workflow, name)

    async def launch(self, name: str, input: Any = None, **options: Unpack[RunOptions]) -> AsyncStarted:
        return await self._rival.run(arguments.name("name", name), input, **options)

    async def get_run(self, run_id: str) -> AsyncInstance:
        workflow = await self._rival._call(self._sync._workflow_of, run_id)
        return AsyncInstance(self._rival, workflow, run_id)

    async def active_runs(self, workflow: str | None = None, *, before: Run | None = None, limit: int = 50) -> Runs:
        return await self._rival.active_runs(workflow, before=before, limit=limit)

    async def cancel(self, run_id: str) -> bool:
        return await self._rival.cancel(run_id)
