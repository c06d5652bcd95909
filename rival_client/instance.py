"""`rival.get(workflow).get_or_create(run_id)`: a workflow's run as a handle that remembers its names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rival_client.records import RunResult, RunState, Started
from rival_client.waiting import DEFAULT_POLL_INTERVAL, DEFAULT_TIMEOUT

if TYPE_CHECKING:
    from rival_client.aio import AsyncRival
    from rival_client.client import Rival


class Workflow:
    def __init__(self, rival: Rival, name: str) -> None:
        self._rival, self.name = rival, name

    def get_or_create(self, run_id: str) -> Instance:
        """A handle; the run itself is created by the handle's `run`."""
        return Instance(self._rival, self.name, run_id)


class Instance:
    """One run by its id, started or not."""

    def __init__(self, rival: Rival, workflow: str, run_id: str) -> None:
        self._rival, self.workflow, self.run_id = rival, workflow, run_id

    def run(self, input: Any = None) -> Started:
        return self._rival.run(self.workflow, input, self.run_id)

    def wait(self, timeout: float | None = DEFAULT_TIMEOUT, poll_interval: float = DEFAULT_POLL_INTERVAL) -> RunResult:
        return self._rival.wait(self.workflow, self.run_id, timeout, poll_interval)

    def get_state(self) -> RunState:
        return self._rival.state(self.run_id)

    def cancel(self) -> bool:
        return self._rival.cancel(self.run_id)


class AsyncWorkflow:
    def __init__(self, rival: AsyncRival, name: str) -> None:
        self._rival, self.name = rival, name

    def get_or_create(self, run_id: str) -> AsyncInstance:
        return AsyncInstance(self._rival, self.name, run_id)


class AsyncInstance:
    def __init__(self, rival: AsyncRival, workflow: str, run_id: str) -> None:
        self._rival, self.workflow, self.run_id = rival, workflow, run_id

    async def run(self, input: Any = None) -> Started:
        return await self._rival.run(self.workflow, input, self.run_id)

    async def wait(
        self, timeout: float | None = DEFAULT_TIMEOUT, poll_interval: float = DEFAULT_POLL_INTERVAL
    ) -> RunResult:
        return await self._rival.wait(self.workflow, self.run_id, timeout, poll_interval)

    async def get_state(self) -> RunState:
        return await self._rival.state(self.run_id)

    async def cancel(self) -> bool:
        return await self._rival.cancel(self.run_id)
