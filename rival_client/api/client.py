"""`Rival`: starts runs and waits for them; its other parts read, operate, schedule. It never runs a step."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection

from rival_client.api.events import EventOperations
from rival_client.api.external_steps import ExternalSteps
from rival_client.api.handles import Started, Workflow, WorkflowRegistry
from rival_client.api.operations import RunOperations
from rival_client.api.reads import RunReads
from rival_client.api.schedules import ScheduleOperations
from rival_client.broker.message import StepMessage
from rival_client.broker.wait_schedule import DEFAULT_POLL_INTERVAL, DEFAULT_TIMEOUT, WaitSchedule
from rival_client.db import caller_tx
from rival_client.db.tables import RUN_TERMINAL
from rival_client.errors import DatabaseError, RunNotFound, WaitTimeout
from rival_client.model import arguments
from rival_client.model.arguments import HasName
from rival_client.model.inputs import InputValidator, batched, given_or_new_id, named_run, run_ids_for
from rival_client.model.payload import Json
from rival_client.model.records import RunResult, WorkflowInfo
from rival_client.sql import run_reads, runs

CHUNK = 1000


class Rival(RunReads, RunOperations, EventOperations, ScheduleOperations, ExternalSteps):
    """A producer's handle. Thread-safe; make one per process and keep it.

    >>> rival = Rival()  # RIVAL_DATABASE_URL and RIVAL_BROKER_URL, or arguments
    >>> started = rival.run("tree-processing", {"tree_type": "oak"})
    >>> started.wait().result  # or rival.wait(started.run_id)
    """

    # -- starting -----------------------------------------------------------------------------------------

    def run(
        self, workflow: str | HasName, input: Any = None, run_id: str | None = None, *, connection: Any = None
    ) -> Started:
        """Start a run and return at once. With `connection` the insert joins that open transaction."""
        validator = self._validator(arguments.workflow(workflow))
        an_id = given_or_new_id(run_id)
        created = self._start(validator, {an_id: validator.validate(input)}, connection)
        return Started(an_id, "started" if an_id in created else "running", self)

    def run_many(
        self,
        workflow: str | HasName,
        inputs: Iterable[Any],
        *,
        run_ids: Sequence[str] | None = None,
        connection: Any = None,
    ) -> list[Started]:
        """Start many runs of one workflow: all inputs are checked first, then inserted a thousand at a time.

        With run ids of your own it is all or nothing: a conflict refuses the lot.
        """
        validator = self._validator(arguments.workflow(workflow))
        admitted = validator.validate_all(arguments.several("inputs", inputs))
        ids = run_ids_for(len(admitted), run_ids)
        parts = [dict(part) for part in batched(zip(ids, admitted, strict=True), CHUNK)]
        if connection is not None or run_ids is None:
            created = set().union(*(self._start(validator, part, connection) for part in parts))
        else:
            created = self._start_at_once(validator, parts)
        return [Started(i, "started" if i in created else "running", self) for i in ids]

    def _start(self, validator: InputValidator, inputs: Mapping[str, Json], connection: Any) -> set[str]:
        grace, message = self.settings.ring_grace, self.publisher(validator.workflow)
        if connection is not None:
            return caller_tx.insert_in(connection, validator.workflow, inputs, grace, message)
        created = self._insert_one(validator.workflow, inputs)
        if not created:
            created = self.database.transact(lambda own: caller_tx.insert(own, validator.workflow, inputs, grace))
        message(created)
        return created

    def _insert_one(self, workflow: WorkflowInfo, inputs: Mapping[str, Json]) -> set[str]:
        """The fast path for one new run. Empty if it was not inserted: then `caller_tx.insert` finds the reason."""
        if self._prepared is None or len(inputs) != 1:
            return set()
        [(run_id, its_input)] = inputs.items()
        row = self._prepared.fetch(
            runs.INSERT_RUN,
            {
                "id": run_id,
                "workflow": workflow.name,
                "version": workflow.version,
                "input": its_input,
                "grace": self.settings.ring_grace,
            },
        )
        return set() if row is None else {run_id}

    def _start_at_once(self, validator: InputValidator, parts: Sequence[Mapping[str, Json]]) -> set[str]:
        def insert(own: Connection) -> set[str]:
            grace = self.settings.ring_grace
            return set().union(*(caller_tx.insert(own, validator.workflow, part, grace) for part in parts))

        created = self.database.transact(insert)
        self.publisher(validator.workflow)(created)
        return created

    def publisher(self, workflow: WorkflowInfo) -> Callable[[set[str]], None]:
        """Publishes messages for committed runs of a workflow."""

        def publish(run_ids: set[str]) -> None:
            self._doorbell.publish([StepMessage(i, None, 0, workflow.name, workflow.version) for i in run_ids])

        return publish

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
        timeout = arguments.timeout(timeout)
        schedule = WaitSchedule.starting(time.monotonic(), timeout, poll_interval)
        name, status = self._status(workflow, run_id)
        if status in RUN_TERMINAL:
            return self.result(run_id)
        with self._run_ends.listen(run_id) as listener:
            while (status := self._status_if_there(workflow, run_id)) not in RUN_TERMINAL:
                pause = schedule.pause(time.monotonic())
                if pause is None:
                    raise WaitTimeout(name, run_id, timeout or 0.0, status)
                listener.wait(pause)
        return self.result(run_id)

    def _status(self, workflow: str | None, run_id: str) -> tuple[str, str]:
        """(workflow, status). `workflow`: the run must be one of this workflow."""
        found = self._read_status(run_id)
        if found is None or workflow not in (None, found[0]):
            raise RunNotFound(run_id, workflow)
        return str(found[0]), str(found[1])

    def _status_if_there(self, workflow: str | None, run_id: str) -> str:
        """Keep waiting while the database is unreachable."""
        try:
            return self._status(workflow, run_id)[1]
        except DatabaseError:
            return "out of reach"

    def _read_status(self, run_id: str) -> tuple[str | None, ...] | None:
        if self._prepared is not None:
            return self._prepared.fetch(run_reads.READ_STATUS, {"id": run_id})
        with self.database.autocommit() as connection:
            return run_reads.read_status(connection, run_id)

    # -- knowing ------------------------------------------------------------------------------------------

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
