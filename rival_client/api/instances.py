"""`rival.get(workflow).get_or_create(run_id)`: runs of one workflow by their ids, in both clients."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Unpack

from rival_client.api.handles import AsyncRunHandle, AsyncStarted, RunHandle, Started
from rival_client.broker.wait_schedule import DEFAULT_POLL_INTERVAL, DEFAULT_TIMEOUT
from rival_client.model.checks import arguments
from rival_client.model.records import RunResult, RunState
from rival_client.model.starts.run_options import RunOptions

if TYPE_CHECKING:
    from rival_client.api.async_client import AsyncRival
    from rival_client.api.client import Rival


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
