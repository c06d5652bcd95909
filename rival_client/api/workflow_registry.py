"""`rival.registry`: the workflows and their runs, in both clients."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Unpack

from rival_client.api.handles import AsyncStarted, Started
from rival_client.api.instances import AsyncInstance, Instance
from rival_client.model.checks import arguments
from rival_client.model.records import Run
from rival_client.model.starts.run_options import RunOptions
from rival_client.model.workflow_info import WorkflowInfo

if TYPE_CHECKING:
    from rival_client.api.async_client import AsyncRival
    from rival_client.api.client import Rival


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
