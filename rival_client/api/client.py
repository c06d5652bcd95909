"""`Rival`: starts runs and waits for them; its other parts read, operate, schedule. It never runs a step."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, TypeVar, Unpack

from sqlalchemy import Connection

from rival_client.api.breakers import BreakerOperations
from rival_client.api.dead_letters import DeadLetterOperations
from rival_client.api.events import EventOperations
from rival_client.api.external_steps import ExternalSteps
from rival_client.api.handles import Started
from rival_client.api.idempotency import IdempotencyOperations
from rival_client.api.instances import Workflow
from rival_client.api.limit_operations import LimitOperations
from rival_client.api.operations import RunOperations
from rival_client.api.policies import PolicyOperations
from rival_client.api.reads import RunReads
from rival_client.api.schedules import ScheduleOperations
from rival_client.api.start_checks import CHUNK, Inserted, check_many, start_of, status_in
from rival_client.api.workflow_registry import WorkflowRegistry
from rival_client.broker.message import StepMessage
from rival_client.broker.wait_schedule import DEFAULT_POLL_INTERVAL, DEFAULT_TIMEOUT, WaitSchedule
from rival_client.db import caller_connections, caller_tx
from rival_client.db.locks import lock_run
from rival_client.db.statement_runs import on_sqlalchemy, run_statements
from rival_client.errors import DatabaseError, RivalError, RunConflict, RunNotEnded, RunNotFound, WaitTimeout
from rival_client.model.checks import amounts, arguments
from rival_client.model.checks.arguments import HasName
from rival_client.model.records import RunResult
from rival_client.model.starts.run_ids import batched, named_run, run_ids_for
from rival_client.model.starts.run_options import RunOptions
from rival_client.model.starts.start_options import StartOptions
from rival_client.model.starts.starts import Start
from rival_client.sql import run_inserts
from rival_client.sql.gathered_starts import Gathered, gather_run
from rival_client.sql.reads import run_reads
from rival_client.sql.shared_starts import Statements, has_place, holder_of, leave_place, skip_start
from rival_client.sql.start_conflicts import take_back

#: How often a start tries to take a singleton place that others take and leave.
_TRIES = 10
T = TypeVar("T")
#: Makes statements for a grace period, and for Postgres or not.
Maker = Callable[[float, bool], Statements[T]]


class Rival(
    RunReads,
    RunOperations,
    DeadLetterOperations,
    PolicyOperations,
    EventOperations,
    ScheduleOperations,
    ExternalSteps,
    BreakerOperations,
    LimitOperations,
    IdempotencyOperations,
):
    """A producer's handle. Thread-safe; make one per process and keep it.

    >>> rival = Rival()  # RIVAL_DATABASE_URL and RIVAL_BROKER_URL, or arguments
    >>> started = rival.run("tree-processing", {"tree_type": "oak"})
    >>> started.wait().result  # or rival.wait(started.run_id)
    """

    # -- starting -----------------------------------------------------------------------------------------

    def run(
        self,
        workflow: str | HasName,
        input: Any = None,
        run_id: str | None = None,
        *,
        connection: Any = None,
        **options: Unpack[RunOptions],
    ) -> Started:
        """Start a run and return at once. With `connection` the insert joins that open transaction."""
        validator, how = self._validator(arguments.workflow(workflow)), StartOptions.of(options)
        start = start_of(validator, input, run_id, how, connection)
        if how.gathering is not None:
            return self._gather(start, connection)
        created = self._start(start, connection)
        if not created and start.may_queue:
            queued = self._start(start.queued(created), connection)
            return Started(start.run_id, "queued" if queued else "running", self)
        if not created and how.singleton is not None:
            return self._settle_conflict(start, connection)
        return Started(start.run_id, "started" if created else "running", self)

    def run_many(
        self,
        workflow: str | HasName,
        inputs: Iterable[Any],
        *,
        run_ids: Sequence[str] | None = None,
        connection: Any = None,
        **options: Unpack[RunOptions],
    ) -> list[Started]:
        """Start many runs of one workflow: all inputs are checked first, then inserted a thousand at a time.

        With run ids of your own it is all or nothing: a conflict refuses all of them.
        """
        validator, how = self._validator(arguments.workflow(workflow)), StartOptions.of(options)
        check_many(how, validator)
        admitted = validator.validate_all(arguments.several("inputs", inputs))
        ids = run_ids_for(len(admitted), run_ids)
        parts = [Start(validator.workflow, dict(part), how) for part in batched(zip(ids, admitted, strict=True), CHUNK)]
        if connection is not None:
            found = self._join_all(parts, connection)
        elif run_ids is None:
            found = [one for part in parts for one in self._start_or_queue(part, None)]
        else:
            found = self._start_at_once(parts)
        return [Started(i, status_in(found, i), self) for i in ids]

    def _join_all(self, parts: Sequence[Start], connection: Any) -> list[Inserted]:
        """All of them, or none: the caller may commit after a conflict."""
        found: list[Inserted] = []
        try:
            for part in parts:
                for one in self._start_or_queue(part, connection):
                    found.append(one)
        except RunConflict:
            inserted = [one.all for one in found]
            caller_tx.run_in(connection, lambda pg: take_back(inserted), lambda done: None)
            raise
        return found

    def _start_or_queue(self, start: Start, connection: Any) -> Iterator[Inserted]:
        created = self._start(start, connection)
        yield Inserted(created, set())
        if start.may_queue and start.missing(created):
            yield Inserted(set(), self._start(start.queued(created), connection))

    def _start(self, start: Start, connection: Any) -> set[str]:
        grace, message = self.settings.ring_grace, self.publisher(start)
        if connection is not None:
            return caller_tx.insert_in(connection, start, grace, message)
        created = self._insert_one(start)
        if not created:
            created = self.database.transact(lambda own: caller_tx.insert(own, start, grace))
        message(created)
        return created

    def _insert_one(self, start: Start) -> set[str]:
        """The fast path for one new run. Empty if it was not inserted: then `caller_tx.insert` finds the reason."""
        if self._prepared is None or len(start.inputs) != 1:
            return set()
        found = self._prepared.fetch(*run_inserts.prepared(start, self.settings.ring_grace))
        return set() if found is None else set(start.inputs)

    def _start_at_once(self, parts: Sequence[Start]) -> list[Inserted]:
        def insert(own: Connection, part: Start) -> Inserted:
            grace = self.settings.ring_grace
            created = caller_tx.insert(own, part, grace)
            waits = part.may_queue and part.missing(created)
            return Inserted(created, caller_tx.insert(own, part.queued(created), grace) if waits else set())

        found = self.database.transact(lambda own: [insert(own, part) for part in parts])
        if created := {run_id for one in found for run_id in (*one.created, *one.queued)}:
            self.publisher(parts[0])(created)
        return found

    # -- starts that share a run ----------------------------------------------------------------------------

    def _gather(self, start: Start, connection: Any) -> Started:
        limit = self.settings.max_payload
        found = self._in(
            connection,
            lambda grace, pg: gather_run(start, grace, limit, on_postgres=pg),
            self.gather_publisher(start),
            alone=start.options.labels is None,
        )
        return Started(found.run_id, "started" if found.is_new else "gathered", self)

    def gather_publisher(self, start: Start) -> Callable[[Gathered], None]:
        """Publishes the message of a run that several starts share: at its first start, and when it has all inputs."""

        def publish(found: Gathered) -> None:
            options = start.options if not found.is_full else replace(start.options, countdown=0.0)
            if found.is_new or found.is_full:
                self.publisher(replace(start, options=options))({found.run_id})

        return publish

    def _settle_conflict(self, start: Start, connection: Any) -> Started:
        """Do what `on_conflict` says, because another run has the singleton place. Try again if that run has ended."""
        for _ in range(_TRIES):
            holder = self._in(connection, lambda grace, pg: holder_of(start))
            settled = None if holder is None else self._settle(start, holder, connection)
            if settled is not None:
                return settled
            if self._start(start, connection):
                return Started(start.run_id, "started", self)
        raise _contended(start)

    def _settle(self, start: Start, holder: str, connection: Any) -> Started | None:
        run_id = start.run_id
        match start.options.on_conflict:
            case _ if holder == run_id:
                return Started(run_id, "running", self)
            case "return":
                return Started(holder, "running", self)
            case "skip":
                self._in(connection, lambda grace, pg: skip_start(start, holder))
                return Started(run_id, "skipped", self, instead_of=holder)
        return self._replace(start, holder)

    def _replace(self, start: Start, holder: str) -> Started | None:
        """Cancel the run that has the place and start another one, in one transaction. None: others were faster."""
        run_id = start.run_id
        by = f"start of {run_id}"[: arguments.MAX_NAME]

        def replaced(own: Connection) -> tuple[bool, StepMessage | None, set[str]]:
            lock_run(own, holder)
            if not has_place(own, holder):
                return False, None, set()
            cancelled, message = self._cancel(own, holder, by)
            leave_place(own, holder)
            return cancelled, message, caller_tx.insert(own, start, self.settings.ring_grace)

        cancelled, message, created = self.database.transact(replaced)
        if cancelled:
            self._after_cancel(holder, by, message)
        self.publisher(start)(created)
        return Started(run_id, "started", self) if created else None

    def _in(
        self, connection: Any, make: Maker[T], after: Callable[[T], None] = lambda value: None, *, alone: bool = False
    ) -> T:
        """Execute statements in a transaction of this client, or in the caller's. `alone`: on Postgres each of them is
        correct in a transaction of its own, which saves round trips while a row is locked."""
        if connection is not None:
            grace = self.settings.ring_grace if caller_connections.reports_commit(connection) else 0.0
            return caller_tx.run_in(connection, lambda pg: make(grace, pg), after)
        grace, pg = self.settings.ring_grace, self.database.is_postgres
        transact = self.database.transact_alone if alone and pg else self.database.transact
        value = transact(lambda own: run_statements(make(grace, pg), on_sqlalchemy(own)))
        after(value)
        return value

    # -- waiting ------------------------------------------------------------------------------------------

    def wait(
        self,
        workflow: str | None = None,
        run_id: str | None = None,
        timeout: float | None = DEFAULT_TIMEOUT,
        poll_interval: float = DEFAULT_POLL_INTERVAL,
    ) -> RunResult:
        """Block until the run has ended. WaitTimeout after `timeout` seconds (None: never). `wait(run_id)` is enough;
        `wait(workflow, run_id)` also checks that it is a run of this workflow.
        """
        workflow, run_id = named_run(workflow, run_id)
        timeout = amounts.timeout(timeout)
        schedule = WaitSchedule.starting(time.monotonic(), timeout, poll_interval)
        with self._run_ends.listen(run_id) as listener:
            name, found = self._first_look(workflow, run_id)
            while isinstance(found, str):
                pause = schedule.pause(time.monotonic())
                if pause is None:
                    raise WaitTimeout(name, run_id, timeout or 0.0, found)
                listener.wait(pause)
                found = self._result_or_status(run_id)
        return found

    def _first_look(self, workflow: str | None, run_id: str) -> tuple[str, RunResult | str]:
        """(workflow, result or status). `workflow`: the run must be one of this workflow."""
        found: RunResult | RunNotEnded
        try:
            found = self.result(run_id)
        except RunNotEnded as not_ended:
            found = not_ended
        except RunNotFound:
            raise RunNotFound(run_id, workflow) from None
        if workflow not in (None, found.workflow):
            raise RunNotFound(run_id, workflow)
        return found.workflow, found if isinstance(found, RunResult) else found.status

    def _status(self, workflow: str | None, run_id: str) -> tuple[str, str]:
        """(workflow, status). `workflow`: the run must be one of this workflow."""
        found = self._read_status(run_id)
        if found is None or workflow not in (None, found[0]):
            raise RunNotFound(run_id, workflow)
        return str(found[0]), str(found[1])

    def _result_or_status(self, run_id: str) -> RunResult | str:
        """The status of a run that has not ended. A wait goes on while the database is unreachable."""
        try:
            return self.result(run_id)
        except RunNotEnded as not_ended:
            return not_ended.status
        except DatabaseError:
            return "out of reach"

    def _read_status(self, run_id: str) -> tuple[str | None, ...] | None:
        if self._prepared is not None:
            return self._prepared.fetch(run_reads.READ_STATUS, {"id": run_id})
        with self.database.autocommit() as connection:
            return run_reads.read_status(connection, run_id)

    # -- handles of workflows -----------------------------------------------------------------------------

    @property
    def registry(self) -> WorkflowRegistry:
        """The workflows and their runs: `rival.registry.list()`, `.launch(name, input)`, `.active_runs()`."""
        return WorkflowRegistry(self)

    def _workflow_of(self, run_id: str) -> str:
        found = self._read_status(arguments.run_id(run_id))
        if found is None:
            raise RunNotFound(run_id)
        return str(found[0])

    def get(self, workflow: str) -> Workflow:
        """The workflow's instances: `rival.get("invoice").get_or_create("order-42").run({...})`."""
        return Workflow(self, workflow)


def _contended(start: Start) -> RivalError:
    return RivalError(
        f"Run {start.run_id!r} was not started: other runs of {start.workflow.name!r} take and leave the "
        f"singleton place {start.options.singleton!r} all the time. Try again."
    )
