"""Library mode: `embedded("app.db")` is a Rival on SQLite with a Celery worker in the same process.

For tests, small tools and notebooks. It has the same engine and guarantees as a fleet.
"""

from __future__ import annotations

import tempfile
import uuid
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, get_args

from rival_client.api.client import Rival
from rival_client.broker.kombu_doorbell import KombuDoorbell
from rival_client.broker.message import AnyMessage
from rival_client.broker.run_end import LocalRunEndNotifier
from rival_client.errors import InvalidArgument, RivalError
from rival_client.model.checks import amounts
from rival_client.model.checks.argument_errors import invalid
from rival_client.model.inputs import InputValidator
from rival_workers.definition.call_places import in_a_notebook
from rival_workers.definition.default_registry import default_registry
from rival_workers.definition.registry import Registry
from rival_workers.definition.workflow import WorkflowDefinition
from rival_workers.library import inproc_broker, inproc_transport
from rival_workers.library.inproc_worker import InprocWorker, PoolName
from rival_workers.runtime.celery.app import Tasks, make_app
from rival_workers.runtime.process import Process
from rival_workers.settings import WorkerSettings
from rival_workers.store import migrations, open_store


class LocalDoorbell(KombuDoorbell):
    """Publishes over the in-process transport; clients that wait for a run are in this process too."""

    def __init__(self, url: str, queue: str, run_ends: LocalRunEndNotifier) -> None:
        super().__init__(url, queue)
        self._run_ends = run_ends

    def publish(self, messages: Sequence[AnyMessage], changed: Sequence[str] = ()) -> bool:
        is_published = super().publish(messages)
        for run_id in changed:
            self._run_ends.announce(run_id)
        return is_published


class EmbeddedRival(Rival):
    """A Rival that also runs the workflows that it starts. Close it, or use it as a context manager."""

    def __init__(
        self, path: str | Path | None, registry: Registry, pool: PoolName, concurrency: int, **settings: Any
    ) -> None:
        self._directory = tempfile.TemporaryDirectory(prefix="rival-") if path is None else None
        file = Path(self._directory.name) / "rival.db" if self._directory else Path(path or "")
        self._namespace = uuid.uuid4().hex
        inproc_transport.register()
        broker_url = f"{inproc_transport.SCHEME}://{self._namespace}/"
        own = WorkerSettings.of({"database_url": f"sqlite:///{file}", "broker_url": broker_url, **settings})
        store = open_store(own.require_database(), **own.store_options)
        migrations.upgrade(store.database)
        run_ends = LocalRunEndNotifier()
        doorbell = LocalDoorbell(own.broker_url or "", own.queue, run_ends)
        super().__init__(settings=own, database=store.database, doorbell=doorbell, run_ends=run_ends)
        self._registry = registry
        #: What is closed first.
        self._closing = ExitStack()
        self._private_directory = file.with_name(f".{file.name}-dashboard")
        self._registered: dict[str, WorkflowDefinition] = {}
        self._process = Process(own, registry, "embedded", store=store, doorbell=doorbell)
        self._worker = self._open_worker(own, pool, concurrency)

    def _open_worker(self, settings: WorkerSettings, pool: PoolName, concurrency: int) -> InprocWorker:
        app = make_app(settings, concurrency)
        self._process.register_workflows()
        self._process.executor.slots = 1 if pool == "solo" else concurrency
        self._process.executor.start()
        Tasks(app).coordinator = self._process.coordinator
        count, queues = self._process.executor.count_over, settings.served.in_broker
        worker = InprocWorker(app, pool=pool, concurrency=concurrency, queues=queues, count_over=count)
        worker.start()
        self._process.keeper.start()
        return worker

    def _validator(self, workflow: str) -> InputValidator:
        # A later cell of a notebook may define a workflow, or define it again.
        newest = self._registry.newest(workflow)
        if newest is not None and self._registered.get(workflow) is not newest:
            self._process.register_workflows()
            self._validators.pop(workflow, None)
            self._registered[workflow] = newest
        return super()._validator(workflow)

    def dashboard(self, *, port: int = 8233, read_only: bool = False) -> str:
        """Serve the dashboard on this machine until the Rival is closed; the link that logs in. Needs the extra
        `dashboard`."""
        # Imported when it is used: it is an extra.
        from rival_workers.dashboard.launch import Launch

        launch = Launch(self._process.settings, port=port, read_only=read_only, directory=self._private_directory)
        server = self._closing.enter_context(launch.opened(self))
        self._closing.enter_context(server.in_background())
        return server.link

    def close(self) -> None:
        global _opened
        self._closing.close()
        _opened = None if _opened is self else _opened
        self._process.stop_continuing()
        self._process.keeper.stop()
        self._worker.stop(self._process.settings.shutdown_grace)
        self._process.hand_back(self._process.executor.id)
        self._process.executor.stop()
        super().close()
        inproc_broker.drop_namespace(self._namespace)
        if self._directory is not None:
            self._directory.cleanup()


def embedded(
    path: str | Path | None = None,
    *,
    registry: Registry | None = None,
    pool: PoolName = "threads",
    concurrency: int = 4,
    **settings: Any,
) -> EmbeddedRival:
    """A Rival on the SQLite file `path` (None: a temporary file), with a worker in this process.

    `settings` are those of a worker: lease=…, continuation_budget=…, retention=….
    """
    global _opened
    if pool not in get_args(PoolName):
        raise invalid("pool", pool, f"a pool: give one of {', '.join(get_args(PoolName))}")
    amounts.whole("concurrency", concurrency, least=1)
    for name in {"database_url", "broker_url"} & settings.keys():
        raise InvalidArgument(name, "embedded() has its own broker and database: give the path of its file.")
    _close_previous()
    own = default_registry if registry is None else registry
    _opened = EmbeddedRival(path, own, pool, concurrency, **settings)
    return _opened


#: The open embedded Rival: a process has one worker.
_opened: EmbeddedRival | None = None


def _close_previous() -> None:
    """A notebook cell that is executed again closes the Rival that it has opened before."""
    if _opened is None:
        return
    if not in_a_notebook():
        raise RivalError(
            "This process already has an open embedded Rival: use that one, or close it first "
            "(`with embedded() as rival:` closes it at the end)."
        )
    _opened.close()
