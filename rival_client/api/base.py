"""The base of every part of `Rival`: settings, database, doorbell, the validators of workflow inputs, and the operator
verbs that read a plan.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import cached_property
from types import TracebackType
from typing import TYPE_CHECKING, Self

from rival_client.broker.doorbell import Doorbell, open_doorbell
from rival_client.broker.message import StepMessage
from rival_client.broker.run_end import RunEndNotifier, open_run_end_notifier
from rival_client.db.database import Database
from rival_client.db.prepared import PreparedPool
from rival_client.errors import RivalError, UnknownWorkflow
from rival_client.model.checks import arguments
from rival_client.model.inputs import InputValidator
from rival_client.model.starts.starts import Start
from rival_client.model.timers import NEAR, is_near
from rival_client.model.workflow_info import WorkflowInfo
from rival_client.settings import Settings
from rival_client.sql import workflows

if TYPE_CHECKING:
    from rival_workers.operations import Operator

#: Seconds for which a producer starts the version that it read last.
VERSION_CACHE_SECONDS = 2.0


class ClientBase:
    """The connections of a client. Each part of `Rival` derives from it and adds methods, but no state."""

    def __init__(
        self,
        database_url: str | None = None,
        broker_url: str | None = None,
        *,
        settings: Settings | None = None,
        database: Database | None = None,
        doorbell: Doorbell | None = None,
        run_ends: RunEndNotifier | None = None,
    ) -> None:
        self._is_closed = False
        arguments.urls(database_url, broker_url)
        if settings is None:
            self.settings = Settings.from_env(database_url=database_url or None, broker_url=broker_url or None)
        else:
            base = arguments.instance("settings", settings, Settings)
            self.settings = base.with_(
                database_url=database_url or base.database_url, broker_url=broker_url or base.broker_url
            )
        self._database = database or Database(self.settings.require_database())
        broker, prefix = self.settings.broker_url, self.settings.key_prefix
        self._doorbell = doorbell or open_doorbell(broker, self.settings.queue, prefix, self.settings.priorities)
        self._run_ends = run_ends or open_run_end_notifier(broker, prefix)
        self._prepared = PreparedPool(self.database.url) if self.database.is_postgres else None
        self._validators: dict[str, tuple[float, InputValidator]] = {}

    @property
    def database(self) -> Database:
        self._check_open()
        return self._database

    def _check_open(self) -> None:
        if self._is_closed:
            raise RivalError("This client is closed: make another one, and keep it as long as the process uses it.")

    def _validator(self, workflow: str) -> InputValidator:
        cached = self._validators.get(workflow)
        if cached and time.monotonic() - cached[0] < VERSION_CACHE_SECONDS:
            return cached[1]
        info = self._workflow(workflow)
        if cached and cached[1].workflow == info:
            validator = cached[1]
        else:
            validator = InputValidator(info, self.settings.max_payload)
        self._validators[workflow] = (time.monotonic(), validator)
        return validator

    def _workflow(self, name: str) -> WorkflowInfo:
        name = arguments.name("name", name)
        with self.database.autocommit() as connection:
            info = workflows.current_workflow(connection, name)
            if info is None:
                raise UnknownWorkflow(name, workflows.workflow_names(connection))
        return info

    def publisher(self, start: Start) -> Callable[[set[str]], None]:
        """Publishes messages for runs that were committed. The keeper publishes those that begin much later."""
        workflow, options = start.workflow, start.options

        def publish(run_ids: set[str]) -> None:
            if is_near(options.countdown, NEAR):
                names, countdown, route = (workflow.name, workflow.version), options.countdown, start.route
                messages = [StepMessage(one, None, 0, *names, countdown=countdown, route=route) for one in run_ids]
                self._doorbell.publish(messages)

        return publish

    @cached_property
    def _operator(self) -> Operator:
        # Imported when first used: to read a plan takes the engine and the store, which double the import time.
        from rival_workers.operations import Operator

        return Operator(self.database, self._doorbell, self.settings)

    def close(self) -> None:
        """Closes connections. Every call after it is a RivalError."""
        self._is_closed = True
        self._doorbell.close()
        prepared, self._prepared = self._prepared, None
        if prepared is not None:
            prepared.close()
        # A start within the caller's transaction uses the database only to read the workflow: it must find it closed.
        self._validators.clear()
        self._database.dispose()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.close()
