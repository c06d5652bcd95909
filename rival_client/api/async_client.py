"""`AsyncRival`: the methods of `Rival`, awaitable. Statements run on a few threads; a `wait` occupies none of them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any, Self, Unpack

from rival_client.api.breakers import AsyncBreakerOperations
from rival_client.api.client import Rival
from rival_client.api.dead_letters import AsyncDeadLetterOperations
from rival_client.api.events import AsyncEventOperations
from rival_client.api.external_steps import AsyncExternalSteps
from rival_client.api.handles import AsyncStarted, Started
from rival_client.api.idempotency import AsyncIdempotencyOperations
from rival_client.api.instances import AsyncWorkflow
from rival_client.api.limit_operations import AsyncLimitOperations
from rival_client.api.operations import AsyncRunOperations
from rival_client.api.policies import AsyncPolicyOperations
from rival_client.api.reads import AsyncRunReads
from rival_client.api.schedules import AsyncScheduleOperations
from rival_client.api.start_checks import CHUNK, Inserted, check_many, start_of, status_in
from rival_client.api.workflow_registry import AsyncWorkflowRegistry
from rival_client.broker.run_end import AsyncRunEndNotifier
from rival_client.broker.wait_schedule import DEFAULT_POLL_INTERVAL, DEFAULT_TIMEOUT, WaitSchedule
from rival_client.db import async_caller_tx, caller_connections
from rival_client.errors import RunConflict, WaitTimeout
from rival_client.forks import call_after_fork
from rival_client.model.checks import amounts, arguments
from rival_client.model.checks.arguments import HasName
from rival_client.model.records import RunResult
from rival_client.model.starts.run_ids import batched, named_run, run_ids_for
from rival_client.model.starts.run_options import RunOptions
from rival_client.model.starts.start_options import StartOptions
from rival_client.model.starts.starts import Start
from rival_client.model.statuses import RUN_TERMINAL
from rival_client.settings import Settings
from rival_client.sql.gathered_starts import gather_run
from rival_client.sql.shared_starts import holder_of, skip_start
from rival_client.sql.start_conflicts import take_back


class AsyncRival(
    AsyncRunReads,
    AsyncRunOperations,
    AsyncDeadLetterOperations,
    AsyncBreakerOperations,
    AsyncLimitOperations,
    AsyncIdempotencyOperations,
    AsyncPolicyOperations,
    AsyncEventOperations,
    AsyncScheduleOperations,
    AsyncExternalSteps,
):
    """A producer's handle inside an event loop.

    >>> rival = AsyncRival()
    >>> started = await rival.run("tree-processing", {"tree_type": "oak"})
    >>> (await started.wait()).result  # or await rival.wait(started.run_id)
    """

    THREADS = 5

    def __init__(
        self,
        database_url: str | None = None,
        broker_url: str | None = None,
        *,
        settings: Settings | None = None,
        sync: Rival | None = None,
    ) -> None:
        self._rival = sync or Rival(database_url, broker_url, settings=settings)
        self.settings = self._rival.settings
        self._run_ends = AsyncRunEndNotifier(self.settings.broker_url, self.settings.key_prefix)
        self._open_threads()
        call_after_fork(self._open_threads)

    def _open_threads(self) -> None:
        self._threads = ThreadPoolExecutor(self.THREADS, thread_name_prefix="rival-client")

    async def run(
        self,
        workflow: str | HasName,
        input: Any = None,
        run_id: str | None = None,
        *,
        connection: Any = None,
        **options: Unpack[RunOptions],
    ) -> AsyncStarted:
        if connection is None:
            return self._handle(await self._call(self._rival.run, workflow, input, run_id, **options))
        how = StartOptions.of(options)
        validator = await self._call(self._rival._validator, arguments.workflow(workflow))
        start = start_of(validator, input, run_id, how, connection)
        if how.gathering is not None:
            return await self._gather(start, connection)
        if not await self._join(connection, start):
            return await self._settle_conflict(start, connection)
        return AsyncStarted(start.run_id, "started", self)

    async def run_many(
        self,
        workflow: str | HasName,
        inputs: Iterable[Any],
        *,
        run_ids: Sequence[str] | None = None,
        connection: Any = None,
        **options: Unpack[RunOptions],
    ) -> list[AsyncStarted]:
        if connection is None:
            started = await self._call(self._rival.run_many, workflow, inputs, run_ids=run_ids, **options)
            return [self._handle(one) for one in started]
        how = StartOptions.of(options)
        validator = await self._call(self._rival._validator, arguments.workflow(workflow))
        check_many(how, validator)
        admitted = validator.validate_all(arguments.several("inputs", inputs))
        ids = run_ids_for(len(admitted), run_ids)
        parts = [Start(validator.workflow, dict(part), how) for part in batched(zip(ids, admitted, strict=True), CHUNK)]
        found = await self._join_all(connection, parts)
        return [AsyncStarted(i, status_in(found, i), self) for i in ids]

    def _handle(self, started: Started) -> AsyncStarted:
        return AsyncStarted(started.run_id, started.status, self, instead_of=started.instead_of)

    async def _gather(self, start: Start, connection: Any) -> AsyncStarted:
        grace = self.settings.ring_grace if caller_connections.reports_commit(connection) else 0.0
        limit = self.settings.max_payload
        found = await async_caller_tx.run_in_async(
            connection, lambda pg: gather_run(start, grace, limit, on_postgres=pg), self._rival.gather_publisher(start)
        )
        return AsyncStarted(found.run_id, "started" if found.is_new else "gathered", self)

    async def _settle_conflict(self, start: Start, connection: Any) -> AsyncStarted:
        run_id = start.run_id
        if start.options.singleton is None:
            return AsyncStarted(run_id, "running", self)
        if start.may_queue:
            queued = await self._join(connection, start.queued(()))
            return AsyncStarted(run_id, "queued" if queued else "running", self)
        holder = await async_caller_tx.run_in_async(connection, lambda pg: holder_of(start), lambda found: None)
        if holder is None:
            created = await self._join(connection, start)
            return AsyncStarted(run_id, "started", self) if created else await self._settle_conflict(start, connection)
        if start.options.on_conflict == "return" or holder == run_id:
            return AsyncStarted(holder, "running", self)
        await async_caller_tx.run_in_async(connection, lambda pg: skip_start(start, holder), lambda done: None)
        return AsyncStarted(run_id, "skipped", self, instead_of=holder)

    async def _join_all(self, connection: Any, parts: Sequence[Start]) -> list[Inserted]:
        """All of them, or none: the caller may commit after a conflict."""
        found: list[Inserted] = []
        try:
            for part in parts:
                found.append(Inserted(created := await self._join(connection, part), set()))
                if part.may_queue and part.missing(created):
                    found.append(Inserted(set(), await self._join(connection, part.queued(created))))
        except RunConflict:
            inserted = [one.all for one in found]
            await async_caller_tx.run_in_async(connection, lambda pg: take_back(inserted), lambda done: None)
            raise
        return found

    async def _join(self, connection: Any, start: Start) -> set[str]:
        grace, message = self.settings.ring_grace, self._rival.publisher(start)
        return await async_caller_tx.insert_in_async(connection, start, grace, message)

    async def wait(
        self,
        workflow: str | None = None,
        run_id: str | None = None,
        timeout: float | None = DEFAULT_TIMEOUT,
        poll_interval: float = DEFAULT_POLL_INTERVAL,
    ) -> RunResult:
        workflow, run_id = named_run(workflow, run_id)
        timeout = amounts.timeout(timeout)
        schedule = WaitSchedule.starting(time.monotonic(), timeout, poll_interval)
        name, status = await self._call(self._rival._status, workflow, run_id)
        if status in RUN_TERMINAL:
            return await self.result(run_id)
        async with self._run_ends.listen(run_id) as listener:
            while isinstance(found := await self._call(self._rival._result_or_status, run_id), str):
                pause = schedule.pause(time.monotonic())
                if pause is None:
                    raise WaitTimeout(name, run_id, timeout or 0.0, found)
                await listener.wait(pause)
        return found

    @property
    def registry(self) -> AsyncWorkflowRegistry:
        return AsyncWorkflowRegistry(self, self._rival)

    def get(self, workflow: str) -> AsyncWorkflow:
        return AsyncWorkflow(self, workflow)

    async def close(self) -> None:
        await asyncio.get_running_loop().run_in_executor(None, self._rival.close)
        self._threads.shutdown(wait=False)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        await self.close()
