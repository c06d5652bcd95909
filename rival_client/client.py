"""`Rival`: start runs, wait for them, look at them, cancel them. Knows the tables, never runs a step."""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from types import TracebackType
from typing import Any, Self

from pydantic import BaseModel

from rival_client import joining, logs, pausing, runs
from rival_client.bell import ChangeBell, open_bell
from rival_client.database import Database
from rival_client.doorbell import Doorbell, open_doorbell
from rival_client.errors import DatabaseUnavailable, RivalError, RunNotFound, UnknownWorkflow, WaitTimeout
from rival_client.events import (
    INSERT_EVENT,
    Delivery,
    Event,
    EventRecord,
    Sent,
    TopicCount,
    count_by_topic,
    insert_event,
    list_events,
    made_event,
    sent_unless_full,
)
from rival_client.hotline import HotLine
from rival_client.inputs import InputGate, batched, checked_run_id, new_run_id, run_ids_for
from rival_client.instance import Workflow
from rival_client.message import EventRing, Ring
from rival_client.operating import Operator, open_operator
from rival_client.payload import Json
from rival_client.records import HistoryEntry, LogEntry, Reopened, Run, RunResult, RunState, Started, WorkflowInfo
from rival_client.recovery import Recovery, recover
from rival_client.registry import WorkflowRegistry
from rival_client.schedules import (
    ScheduleRecord,
    list_schedules,
    put_schedule,
    read_schedule,
    refuse_taken,
    remove_schedule,
)
from rival_client.settings import Settings
from rival_client.tables import RUN_ACTIVE, RUN_TERMINAL
from rival_client.ticks import CatchUp, Planned, checked_catch_up, checked_name, checked_rule
from rival_client.waiting import DEFAULT_POLL_INTERVAL, DEFAULT_TIMEOUT, WaitSchedule
from rival_client.waking import wake_parent

#: How long a producer goes on starting the version it has seen last.
VERSION_CACHE_SECONDS = 2.0
CHUNK = 1000
_CANCEL_TRIES = 50


class Rival:
    """A producer's handle. Thread-safe; make one per process and keep it.

    >>> rival = Rival()  # RIVAL_DATABASE_URL and RIVAL_BROKER_URL, or arguments
    >>> started = rival.run("tree-processing", {"tree_type": "oak"})
    >>> rival.wait("tree-processing", started.run_id).result
    """

    def __init__(
        self,
        database_url: str | None = None,
        broker_url: str | None = None,
        *,
        settings: Settings | None = None,
        database: Database | None = None,
        doorbell: Doorbell | None = None,
        bell: ChangeBell | None = None,
    ) -> None:
        base = settings or Settings.from_env()
        self.settings = base.with_(
            database_url=database_url or base.database_url, broker_url=broker_url or base.broker_url
        )
        self.database = database or Database(self.settings.require_database())
        broker, prefix = self.settings.broker_url, self.settings.key_prefix
        self._doorbell = doorbell or open_doorbell(broker, self.settings.queue, prefix)
        self._bell = bell or open_bell(broker, prefix)
        self._hot = HotLine(self.database.url) if self.database.is_postgres else None
        self._gates: dict[str, tuple[float, InputGate]] = {}

    # -- starting -----------------------------------------------------------------------------------------

    def run(self, workflow: str, input: Any = None, run_id: str | None = None, *, connection: Any = None) -> Started:
        """Start a run and return at once. With `connection` the insert joins that open transaction."""
        gate = self._gate(workflow)
        an_id = checked_run_id(run_id) if run_id is not None else new_run_id()
        created = self._start(gate, {an_id: gate.admit(input)}, connection)
        return Started(an_id, "started" if an_id in created else "running")

    def run_many(
        self, workflow: str, inputs: Iterable[Any], *, run_ids: Sequence[str] | None = None, connection: Any = None
    ) -> list[Started]:
        """Start many runs of one workflow: all inputs are checked first, then inserted a thousand at a time.

        With run ids of your own it is all or nothing: a conflict refuses the lot.
        """
        gate = self._gate(workflow)
        admitted = gate.admit_all(inputs)
        ids = run_ids_for(len(admitted), run_ids)
        parts = [dict(part) for part in batched(zip(ids, admitted, strict=True), CHUNK)]
        if connection is not None or run_ids is None:
            created = set().union(*(self._start(gate, part, connection) for part in parts))
        else:
            created = self._start_at_once(gate, parts)
        return [Started(i, "started" if i in created else "running") for i in ids]

    def _start(self, gate: InputGate, inputs: Mapping[str, Json], connection: Any) -> set[str]:
        grace, ring = self.settings.ring_grace, self.ringer(gate.workflow)
        if connection is not None:
            return joining.insert_in(connection, gate.workflow, inputs, grace, ring)
        created = self._insert_one(gate.workflow, inputs)
        if not created:
            with self.database.transaction() as own:
                created = joining.insert(own, gate.workflow, inputs, grace)
        ring(created)
        return created

    def _insert_one(self, workflow: WorkflowInfo, inputs: Mapping[str, Json]) -> set[str]:
        """The quick way for a single new run; empty when it is not one, and the thorough way must say why."""
        if self._hot is None or len(inputs) != 1:
            return set()
        [(run_id, its_input)] = inputs.items()
        row = self._hot.fetch(
            runs.INSERT_RUN,
            {"id": run_id, "workflow": workflow.name, "version": workflow.version, "input": its_input,
             "grace": self.settings.ring_grace},
        )  # fmt: skip
        return set() if row is None else {run_id}

    def _start_at_once(self, gate: InputGate, parts: Iterable[Mapping[str, Json]]) -> set[str]:
        created: set[str] = set()
        with self.database.transaction() as own:
            for part in parts:
                created |= joining.insert(own, gate.workflow, part, self.settings.ring_grace)
        self.ringer(gate.workflow)(created)
        return created

    def ringer(self, workflow: WorkflowInfo) -> Callable[[set[str]], None]:
        """Rings for freshly committed runs of a workflow."""

        def ring(run_ids: set[str]) -> None:
            self._doorbell.ring([Ring(i, None, 0, workflow.name, workflow.version) for i in run_ids])

        return ring

    def _gate(self, workflow: str) -> InputGate:
        cached = self._gates.get(workflow)
        if cached and time.monotonic() - cached[0] < VERSION_CACHE_SECONDS:
            return cached[1]
        info = self._workflow(workflow)
        if cached and cached[1].workflow == info:
            gate = cached[1]
        else:
            gate = InputGate(info, self.settings.max_payload)
        self._gates[workflow] = (time.monotonic(), gate)
        return gate

    # -- telling ------------------------------------------------------------------------------------------

    def send_event(
        self, topic: str | BaseModel, payload: Any = None, *, key: str | None = None, run_id: str | None = None,
        delivery: Delivery = "one", expires: float | dt.timedelta | None = None, event_id: str | None = None,
        connection: Any = None,
    ) -> Sent:  # fmt: skip
        """Tell the runs that wait for this topic (and key, if they asked for one): the one that has waited longest, or
        "all" of them. Kept for `expires` seconds while nobody waits. The same `event_id` twice is one event.

        A pydantic model as the topic is a typed event: its fields are the payload. TopicFull when the topic keeps as
        many as it may, and nobody waits for this one.
        """
        event = made_event(topic, payload, key, run_id, delivery, expires, event_id, self.settings)
        ring = self.event_ringer(event)
        if connection is not None:
            sent = joining.send_in(connection, event, self.settings.ring_grace, ring)
            return Sent(event.id, "sent" if sent else "duplicate")
        sent = self._insert_event(event)
        if sent:
            ring()
        return Sent(event.id, "sent" if sent else "duplicate")

    def _insert_event(self, event: Event) -> bool:
        if self._hot is not None:
            row = self._hot.fetch(INSERT_EVENT, event.parameters(self.settings.ring_grace))
            return sent_unless_full(event, str(row and row[0]))
        with self.database.transaction() as own:
            return insert_event(own, event, self.settings.ring_grace)

    def event_ringer(self, event: Event) -> Callable[[], None]:
        """Rings for a freshly committed event."""

        def ring() -> None:
            self._doorbell.ring([EventRing(event.id, event.topic)])

        return ring

    def events(self, topic: str | None = None, limit: int = 50) -> list[EventRecord]:
        """The newest events first."""
        with self.database.autocommit() as connection:
            return list_events(connection, topic, limit)

    def topics(self, topic: str | None = None) -> list[TopicCount]:
        """How many events that nobody has got yet each topic has, the fullest first."""
        with self.database.autocommit() as connection:
            return count_by_topic(connection, self.settings.max_events_per_topic, topic)

    # -- scheduling ---------------------------------------------------------------------------------------

    def schedule(
        self, workflow: str, when: str | float | dt.timedelta, *, name: str, input: Any = None, timezone: str = "UTC",
        catch_up: CatchUp = "none",
    ) -> ScheduleRecord:  # fmt: skip
        """Start a run at each tick of a cron expression, or every so many seconds. The same name again changes it.

        `catch_up`: of the ticks that the whole fleet has missed, "none" get a run, or the "last", or "all".
        """
        planned = Planned(checked_rule(when, timezone), checked_catch_up(catch_up), self._gate(workflow).admit(input))
        with self.database.transaction() as own:
            refuse_taken(own, checked_name(name))
            put_schedule(own, name, workflow, planned)
            return read_schedule(own, name)

    def schedules(self, workflow: str | None = None) -> list[ScheduleRecord]:
        """All schedules, or those of one workflow, by name."""
        with self.database.autocommit() as connection:
            return list_schedules(connection, workflow)

    def unschedule(self, name: str) -> bool:
        """False when there is no such schedule. A workflow's own comes back when a worker registers the workflow."""
        with self.database.transaction() as own:
            return remove_schedule(own, name)

    # -- waiting ------------------------------------------------------------------------------------------

    def wait(
        self,
        workflow: str,
        run_id: str,
        timeout: float | None = DEFAULT_TIMEOUT,
        poll_interval: float = DEFAULT_POLL_INTERVAL,
    ) -> RunResult:
        """Block until the run has ended. WaitTimeout after `timeout` seconds (None: never)."""
        schedule = WaitSchedule.starting(time.monotonic(), timeout, poll_interval)
        status = self._status(workflow, run_id)
        if status in RUN_TERMINAL:
            return self.result(run_id)
        with self._bell.listen(run_id) as listener:
            while (status := self._status_if_there(workflow, run_id)) not in RUN_TERMINAL:
                pause = schedule.pause(time.monotonic())
                if pause is None:
                    raise WaitTimeout(workflow, run_id, timeout or 0.0, status)
                listener.wait(pause)
        return self.result(run_id)

    def _status(self, workflow: str, run_id: str) -> str:
        found = self._read_status(run_id)
        if found is None or found[0] != workflow:
            raise RunNotFound(run_id, workflow)
        return str(found[1])

    def _status_if_there(self, workflow: str, run_id: str) -> str:
        """A database that goes away in the middle of a wait is waited for, too."""
        try:
            return self._status(workflow, run_id)
        except DatabaseUnavailable:
            return "out of reach"

    def _read_status(self, run_id: str) -> tuple[str | None, ...] | None:
        if self._hot is not None:
            return self._hot.fetch(runs.READ_STATUS, {"id": run_id})
        with self.database.autocommit() as connection:
            return runs.read_status(connection, run_id)

    # -- looking ------------------------------------------------------------------------------------------

    def result(self, run_id: str) -> RunResult:
        """How an ended run ended; RunNotEnded when it has not."""
        with self.database.snapshot() as connection:
            return runs.read_result(connection, run_id)

    def state(self, run_id: str, *, fold: int | None = None) -> RunState:
        """The run and its steps as they are now. With `fold`, for big runs: without results and items, and the turns
        of a for_each or loop that has more than so many are only counted, in `folded`.
        """
        with self.database.snapshot() as connection:
            return runs.read_state(connection, run_id, fold)

    def history(self, run_id: str) -> list[HistoryEntry]:
        with self.database.autocommit() as connection:
            return runs.read_history(connection, run_id)

    def logs(
        self,
        run_id: str,
        step: str | None = None,
        level: str | None = None,
        after: int | None = None,
        limit: int = logs.DEFAULT_LIMIT,
    ) -> list[LogEntry]:
        """What the run's steps have logged, the oldest first, also while they run. `step` with all below it, `level`
        and above; the last entry's `id` as `after` gives what follows it.
        """
        with self.database.autocommit() as connection:
            return logs.read_logs(connection, run_id, step=step, level=level, after=after, limit=limit)

    def runs(
        self,
        *,
        workflow: str | None = None,
        status: str | Sequence[str] | None = None,
        since: dt.datetime | None = None,
        until: dt.datetime | None = None,
        input: Mapping[str, Any] | None = None,
        before: Run | None = None,
        limit: int = 50,
    ) -> list[Run]:
        """The newest runs first; give the last one as `before` for the next page. `status` may be several."""
        with self.database.autocommit() as connection:
            return runs.list_runs(
                connection, workflow=workflow, status=status, since=since, until=until,
                input=input, before=before, limit=limit,
            )  # fmt: skip

    def active_runs(self, workflow: str | None = None, *, before: Run | None = None, limit: int = 50) -> list[Run]:
        """The runs that have not ended, the newest first."""
        return self.runs(workflow=workflow, status=RUN_ACTIVE, before=before, limit=limit)

    def workflows(self) -> list[WorkflowInfo]:
        with self.database.autocommit() as connection:
            return runs.list_workflows(connection)

    def versions(self, workflow: str) -> list[WorkflowInfo]:
        """All versions that workers have ever brought of a workflow; the one that new runs take first."""
        with self.database.autocommit() as connection:
            found = runs.list_versions(connection, workflow)
            if not found:
                raise UnknownWorkflow(workflow, runs.workflow_names(connection))
            return found

    @property
    def registry(self) -> WorkflowRegistry:
        """The workflows and their runs: `rival.registry.list()`, `.launch(name, input)`, `.active_runs()`."""
        return WorkflowRegistry(self)

    def _workflow(self, name: str) -> WorkflowInfo:
        with self.database.autocommit() as connection:
            info = runs.current_workflow(connection, name)
            if info is None:
                raise UnknownWorkflow(name, runs.workflow_names(connection))
        return info

    def _workflow_of(self, run_id: str) -> str:
        found = self._read_status(run_id)
        if found is None:
            raise RunNotFound(run_id)
        return str(found[0])

    # -- acting -------------------------------------------------------------------------------------------

    def cancel(self, run_id: str, *, by: str = "client") -> bool:
        """Cancel the run, all its open steps and its children. False when it had ended already."""
        for _ in range(_CANCEL_TRIES):
            woken = None
            with self.database.transaction() as connection:
                cancelled = runs.cancel_run(connection, run_id, by)
                if cancelled:
                    woken = wake_parent(connection, run_id, self.settings.ring_grace)
                if cancelled is None:
                    connection.rollback()
            if cancelled is not None:
                if cancelled:
                    self._doorbell.ring([] if woken is None else [woken.ring], changed=[run_id])
                    self._cancel_children(run_id, by)
                return cancelled
        raise RivalError(f"Run {run_id!r} kept moving while it was being cancelled. Try again.")

    def _cancel_children(self, run_id: str, by: str) -> None:
        """Each in a transaction of its own: locks go from child to parent, never back."""
        with self.database.autocommit() as connection:
            children = runs.open_children(connection, run_id)
        for child in children:
            self.cancel(child, by=by)

    def retry(self, run_id: str, *, dry_run: bool = False, by: str = "client") -> Reopened:
        """A failed or cancelled run goes on where it has stopped: that step begins anew, with all its attempts."""
        return self._operator.retry(run_id, by, dry_run)

    def rewind(self, run_id: str, step: str, *, dry_run: bool = False, by: str = "client") -> Reopened:
        """The run goes on from that step again, whatever has become of it: what came after it is undone. With
        `dry_run` it only says what would run again.
        """
        return self._operator.rewind(run_id, step, by, dry_run)

    def skip(self, run_id: str, step: str, *, reason: str, by: str = "client") -> None:
        """An open step, or the one that the run has stopped at, ends as skipped, and the run goes on behind it."""
        self._operator.skip(run_id, step, reason, by)

    def set_result(self, run_id: str, step: str, result: Any, *, reason: str, by: str = "client") -> None:
        """As `skip`, but the step is completed with this result. It is not checked against the step's type."""
        self._operator.set_result(run_id, step, result, reason, by)

    @cached_property
    def _operator(self) -> Operator:
        return open_operator(self.database, self._doorbell, self.settings)

    def pause(self, run_id: str, *, by: str = "client") -> bool:
        """Let the run start nothing new; what is running ends as it does. False: it has ended, or is paused already."""
        with self.database.transaction() as connection:
            return pausing.pause_run(connection, run_id, by)

    def resume(self, run_id: str, *, by: str = "client") -> bool:
        """Let a paused run go on with all that has become due. False: it is not paused."""
        with self.database.transaction() as connection:
            rings = pausing.resume_run(connection, run_id, by, self.settings.ring_grace)
        if rings is None:
            return False
        self._doorbell.ring(rings, changed=[run_id])
        return True

    def recover(self) -> Recovery:
        """Have all that waits for a worker rung for anew, and tell what there is to recover.

        Safe at any time: it is the live workers that do the work.
        """
        return recover(self.database)

    def get(self, workflow: str) -> Workflow:
        """The workflow's instances: `rival.get("invoice").get_or_create("order-42").run({...})`."""
        return Workflow(self, workflow)

    # -- closing ------------------------------------------------------------------------------------------

    def close(self) -> None:
        self._doorbell.close()
        if self._hot is not None:
            self._hot.close()
        self.database.dispose()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.close()
