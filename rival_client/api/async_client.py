"""`AsyncRival`: the same surface, awaitable. Statements run on a few threads; waiting is the event loop's own."""

from __future__ import annotations

import asyncio
import datetime as dt
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from types import TracebackType
from typing import Any, ParamSpec, Self, TypeVar

from pydantic import BaseModel

from rival_client.api.bulk import LIMIT, Bulk, BulkOutcome, Verb
from rival_client.api.client import CHUNK, Rival
from rival_client.api.handles import AsyncStarted, AsyncWorkflow, AsyncWorkflowRegistry, Started
from rival_client.broker.run_end import AsyncRunEndNotifier
from rival_client.broker.wait_schedule import DEFAULT_POLL_INTERVAL, DEFAULT_TIMEOUT, WaitSchedule
from rival_client.db import caller_tx
from rival_client.db.tables import RUN_TERMINAL
from rival_client.errors import WaitTimeout
from rival_client.model import arguments
from rival_client.model.arguments import HasName
from rival_client.model.cron import CatchUp
from rival_client.model.inputs import InputValidator, batched, given_or_new_id, named_run, run_ids_for
from rival_client.model.payload import Json
from rival_client.model.records import HistoryEntry, LogEntry, Reopened, Run, RunResult, RunState, WorkflowInfo
from rival_client.model.statuses import RunStatus
from rival_client.settings import Settings
from rival_client.sql.events import Delivery, EventRecord, Sent, TopicCount, made_event
from rival_client.sql.logs import DEFAULT_LIMIT
from rival_client.sql.recovery import Recovery
from rival_client.sql.run_family import DEPTH, WIDTH, RunNode
from rival_client.sql.run_search import RunFilter, Runs
from rival_client.sql.schedules import ScheduleRecord

P = ParamSpec("P")
T = TypeVar("T")


class AsyncRival:
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
        self._threads = ThreadPoolExecutor(self.THREADS, thread_name_prefix="rival-client")

    async def _call(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, partial(function, *args, **kwargs))

    async def run(
        self, workflow: str | HasName, input: Any = None, run_id: str | None = None, *, connection: Any = None
    ) -> AsyncStarted:
        if connection is None:
            return self._handle(await self._call(self._rival.run, workflow, input, run_id))
        validator = await self._call(self._rival._validator, arguments.workflow(workflow))
        an_id = given_or_new_id(run_id)
        created = await self._join(connection, validator, {an_id: validator.validate(input)})
        return AsyncStarted(an_id, "started" if an_id in created else "running", self)

    async def run_many(
        self,
        workflow: str | HasName,
        inputs: Iterable[Any],
        *,
        run_ids: Sequence[str] | None = None,
        connection: Any = None,
    ) -> list[AsyncStarted]:
        if connection is None:
            started = await self._call(self._rival.run_many, workflow, inputs, run_ids=run_ids)
            return [self._handle(one) for one in started]
        validator = await self._call(self._rival._validator, arguments.workflow(workflow))
        admitted = validator.validate_all(arguments.several("inputs", inputs))
        ids = run_ids_for(len(admitted), run_ids)
        created: set[str] = set()
        for part in batched(zip(ids, admitted, strict=True), CHUNK):
            created |= await self._join(connection, validator, dict(part))
        return [AsyncStarted(i, "started" if i in created else "running", self) for i in ids]

    def _handle(self, started: Started) -> AsyncStarted:
        return AsyncStarted(started.run_id, started.status, self)

    async def _join(self, connection: Any, validator: InputValidator, inputs: Mapping[str, Json]) -> set[str]:
        grace, message = self.settings.ring_grace, self._rival.publisher(validator.workflow)
        return await caller_tx.insert_in_async(connection, validator.workflow, inputs, grace, message)

    async def send_event(
        self,
        topic: str | BaseModel,
        payload: Any = None,
        *,
        key: str | None = None,
        run_id: str | None = None,
        delivery: Delivery = "one",
        expires: float | dt.timedelta | None = None,
        event_id: str | None = None,
        connection: Any = None,
    ) -> Sent:
        if connection is None:
            return await self._call(
                self._rival.send_event,
                topic,
                payload,
                key=key,
                run_id=run_id,
                delivery=delivery,
                expires=expires,
                event_id=event_id,
            )
        event = made_event(topic, payload, key, run_id, delivery, expires, event_id, self.settings)
        message = self._rival.event_publisher(event)
        sent = await caller_tx.send_in_async(connection, event, self.settings.ring_grace, message)
        return Sent(event.id, "sent" if sent else "duplicate")

    async def events(self, topic: str | None = None, limit: int = 50) -> list[EventRecord]:
        return await self._call(self._rival.events, topic, limit)

    async def complete_step(self, token: str, result: Any = None, *, by: str = "client") -> bool:
        return await self._call(self._rival.complete_step, token, result, by=by)

    async def fail_step(
        self, token: str, error: str | BaseException | Mapping[str, Any], *, retry: bool = False, by: str = "client"
    ) -> bool:
        return await self._call(self._rival.fail_step, token, error, retry=retry, by=by)

    async def heartbeat_step(self, token: str, progress: Any = None) -> bool:
        return await self._call(self._rival.heartbeat_step, token, progress)

    async def topics(self, topic: str | None = None) -> list[TopicCount]:
        return await self._call(self._rival.topics, topic)

    async def schedule(
        self,
        workflow: str,
        when: str | float | dt.timedelta,
        *,
        name: str,
        input: Any = None,
        timezone: str = "UTC",
        catch_up: CatchUp = "none",
    ) -> ScheduleRecord:
        return await self._call(
            self._rival.schedule, workflow, when, name=name, input=input, timezone=timezone, catch_up=catch_up
        )

    async def schedules(self, workflow: str | None = None) -> list[ScheduleRecord]:
        return await self._call(self._rival.schedules, workflow)

    async def unschedule(self, name: str) -> bool:
        return await self._call(self._rival.unschedule, name)

    async def wait(
        self,
        workflow: str | None = None,
        run_id: str | None = None,
        timeout: float | None = DEFAULT_TIMEOUT,
        poll_interval: float = DEFAULT_POLL_INTERVAL,
    ) -> RunResult:
        workflow, run_id = named_run(workflow, run_id)
        timeout = arguments.timeout(timeout)
        schedule = WaitSchedule.starting(time.monotonic(), timeout, poll_interval)
        name, status = await self._call(self._rival._status, workflow, run_id)
        if status in RUN_TERMINAL:
            return await self.result(run_id)
        async with self._run_ends.listen(run_id) as listener:
            while (status := await self._call(self._rival._status_if_there, workflow, run_id)) not in RUN_TERMINAL:
                pause = schedule.pause(time.monotonic())
                if pause is None:
                    raise WaitTimeout(name, run_id, timeout or 0.0, status)
                await listener.wait(pause)
        return await self.result(run_id)

    async def result(self, run_id: str) -> RunResult:
        return await self._call(self._rival.result, run_id)

    async def state(self, run_id: str, *, fold: int | None = None) -> RunState:
        return await self._call(self._rival.state, run_id, fold=fold)

    async def history(self, run_id: str) -> list[HistoryEntry]:
        return await self._call(self._rival.history, run_id)

    async def logs(
        self,
        run_id: str,
        step: str | None = None,
        level: str | None = None,
        after: int | None = None,
        limit: int = DEFAULT_LIMIT,
    ) -> list[LogEntry]:
        return await self._call(self._rival.logs, run_id, step, level, after, limit)

    async def runs(
        self,
        *,
        workflow: str | None = None,
        status: RunStatus | Sequence[RunStatus] | None = None,
        since: dt.datetime | None = None,
        until: dt.datetime | None = None,
        ended_since: dt.datetime | None = None,
        ended_until: dt.datetime | None = None,
        input: Mapping[str, Any] | None = None,
        result: Mapping[str, Any] | None = None,
        error: str | None = None,
        parent: str | None = None,
        paused: bool | None = None,
        before: Run | None = None,
        after: str | None = None,
        limit: int = 50,
    ) -> Runs:
        return await self._call(
            self._rival.runs,
            workflow=workflow,
            status=status,
            since=since,
            until=until,
            ended_since=ended_since,
            ended_until=ended_until,
            input=input,
            result=result,
            error=error,
            parent=parent,
            paused=paused,
            before=before,
            after=after,
            limit=limit,
        )

    async def active_runs(self, workflow: str | None = None, *, before: Run | None = None, limit: int = 50) -> Runs:
        return await self._call(self._rival.active_runs, workflow, before=before, limit=limit)

    async def tree(self, run_id: str, *, below: bool = False, depth: int = DEPTH, width: int = WIDTH) -> RunNode:
        return await self._call(self._rival.tree, run_id, below=below, depth=depth, width=width)

    async def workflows(self) -> list[WorkflowInfo]:
        return await self._call(self._rival.workflows)

    async def versions(self, workflow: str) -> list[WorkflowInfo]:
        return await self._call(self._rival.versions, workflow)

    async def cancel(self, run_id: str, *, by: str = "client") -> bool:
        return await self._call(self._rival.cancel, run_id, by=by)

    async def retry(self, run_id: str, *, dry_run: bool = False, by: str = "client") -> Reopened:
        return await self._call(self._rival.retry, run_id, dry_run=dry_run, by=by)

    async def rewind(self, run_id: str, step: str, *, dry_run: bool = False, by: str = "client") -> Reopened:
        return await self._call(self._rival.rewind, run_id, step, dry_run=dry_run, by=by)

    async def skip(self, run_id: str, step: str, *, reason: str, dry_run: bool = False, by: str = "client") -> None:
        await self._call(self._rival.skip, run_id, step, reason=reason, dry_run=dry_run, by=by)

    async def set_result(
        self, run_id: str, step: str, result: Any, *, reason: str, dry_run: bool = False, by: str = "client"
    ) -> None:
        await self._call(self._rival.set_result, run_id, step, result, reason=reason, dry_run=dry_run, by=by)

    async def pause(self, run_id: str, *, by: str = "client") -> bool:
        return await self._call(self._rival.pause, run_id, by=by)

    async def resume(self, run_id: str, *, by: str = "client") -> bool:
        return await self._call(self._rival.resume, run_id, by=by)

    async def bulk(
        self,
        verb: Verb,
        runs: RunFilter | Sequence[str],
        *,
        step: str | None = None,
        value: Any = None,
        reason: str | None = None,
        limit: int = LIMIT,
        dry_run: bool = False,
        by: str = "client",
        on_outcome: Callable[[BulkOutcome], None] | None = None,
    ) -> Bulk:
        """As `Rival.bulk`. `on_outcome` is called in another thread."""
        return await self._call(
            self._rival.bulk,
            verb,
            runs,
            step=step,
            value=value,
            reason=reason,
            limit=limit,
            dry_run=dry_run,
            by=by,
            on_outcome=on_outcome,
        )

    async def recover(self) -> Recovery:
        return await self._call(self._rival.recover)

    @property
    def registry(self) -> AsyncWorkflowRegistry:
        return AsyncWorkflowRegistry(self, self._rival)

    def get(self, workflow: str) -> AsyncWorkflow:
        return AsyncWorkflow(self, workflow)

    async def close(self) -> None:
        await self._call(self._rival.close)
        self._threads.shutdown(wait=False)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        await self.close()
