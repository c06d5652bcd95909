"""`install(app)`: workers of an existing Celery app run workflows as well as the app's own tasks.

It changes no settings of the app, and neither imports workflows nor connects before a worker starts: producers import
the app as well.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from celery import Celery, signals
from celery.concurrency import get_implementation

from rival_client.errors import ConfigurationError, RivalError
from rival_client.model.starts.queues import DEFAULT_QUEUE, broker_queue, is_queue, split_queues
from rival_workers.definition.default_registry import default_registry
from rival_workers.definition.files import register_paths
from rival_workers.settings import WorkerSettings, masked

if TYPE_CHECKING:
    from rival_workers.runtime.celery.lifecycle import WorkerLifecycle

log = logging.getLogger("rival.worker")

Paths = str | Path | Sequence[str | Path]

#: Options of Rival's tasks that override the app's defaults. Steps have their own timeouts, so the limit of the task is
#: a year; None would mean the app's limit.
_YEAR = 365 * 86_400
TASK_OPTIONS: dict[str, Any] = {
    "acks_late": False,
    "reject_on_worker_lost": False,
    "retry_on_worker_lost": False,
    "track_started": False,
    "store_errors_even_if_ignored": False,
    "rate_limit": 0,
    "time_limit": _YEAR,
    "soft_time_limit": _YEAR,
}
_installed: WeakKeyDictionary[Celery, InstalledWorker] = WeakKeyDictionary()
#: Settings that come from the app: Rival publishes where the app's workers consume.
_FROM_APP = ("broker_url", "key_prefix")


def install(app: Celery, *, workflows: Paths = (), settings: Mapping[str, Any] | None = None) -> None:
    """Workers of this app that consume Rival's queue (`-Q celery,rival`) run workflows as well.

    `workflows`: files and directories (default: RIVAL_WORKFLOWS), in addition to workflows that the app's own modules
    register. `settings`: a worker's settings by name; they override the environment.
    """
    given = dict(settings or {})
    _check_names(given)
    installed = InstalledWorker(app, [workflows] if isinstance(workflows, str | Path) else list(workflows), given)
    _installed[app] = installed
    signals.worker_init.connect(installed.on_worker_init, weak=False, dispatch_uid=f"rival-{id(app)}")


def installed_settings(app: Celery) -> WorkerSettings | None:
    """The settings that a worker of the app would have; None without `install(app)`."""
    found = _installed.get(app)
    return None if found is None else found.settings()


def _check_names(given: Mapping[str, Any]) -> None:
    known = {field.name for field in fields(WorkerSettings)} - {*_FROM_APP, "workflows"}
    for name in given:
        if name in _FROM_APP:
            raise ConfigurationError(f"install(settings=…): leave {name} out, it is the Celery app's own.")
        if name not in known:
            raise ConfigurationError(f"install(settings=…): unknown setting {name!r}; known are {sorted(known)}.")


class InstalledWorker:
    """Rival in a worker of another app. It never ends the process once the worker runs, since that has other tasks."""

    def __init__(self, app: Celery, workflows: Sequence[str | Path], given: Mapping[str, Any]) -> None:
        self._app, self._workflows, self._given = app, workflows, given

    def on_worker_init(self, sender: Any, **_: Any) -> None:
        if sender.app is not self._app:
            return
        try:
            self._start(sender)
        except RivalError as error:
            # Celery only logs what a receiver raises, and would continue without Rival.
            raise SystemExit(f"rival: {error}") from error

    def _start(self, worker: Any) -> None:
        settings = _served(self.settings(), self._app.amqp.queues.consume_from)
        if settings is None:
            text = f"this worker does not listen to queue {self.settings().queue!r}: it runs no workflows"
            signals.worker_ready.connect(lambda **_: log.info(text), weak=False)
            return
        _check_app(self._app)
        register_paths(self._workflows or settings.workflow_paths)
        if not len(default_registry):
            raise ConfigurationError("No workflows are given. Say where they are: install(app, workflows=…).")
        self._lifecycle(worker, settings).start()

    def _lifecycle(self, worker: Any, settings: WorkerSettings) -> WorkerLifecycle:
        # Imported here, since it imports the store and Alembic, which a producer does not need.
        from rival_workers.runtime.celery.lifecycle import WorkerLifecycle

        forks = _pool(worker.pool_cls) == "prefork"
        options = {"forks": forks, "name": worker.hostname, **TASK_OPTIONS}
        lifecycle = WorkerLifecycle(self._app, settings, default_registry, **options)
        names = ", ".join(sorted(workflow.name for workflow in default_registry))
        lifecycle.when_ready = lambda: log.info("worker %s also runs workflows: %s", worker.hostname, names)
        return lifecycle

    def settings(self) -> WorkerSettings:
        found = WorkerSettings.from_env(**self._given)
        url = _broker(self._app) or found.broker_url
        if found.broker_url not in (None, url):
            differs = "RIVAL_BROKER_URL is %s, but this worker consumes from %s: it publishes there, and producers must"
            log.warning(differs, masked(found.broker_url), masked(url))
        prefix = (self._app.conf.broker_transport_options or {}).get("global_keyprefix", "")
        paths = os.pathsep.join(map(str, self._workflows)) or found.workflows
        return found.with_(broker_url=url, key_prefix=prefix, workflows=paths)


def _served(settings: WorkerSettings, consumed: Collection[str]) -> WorkerSettings | None:
    """With the queues that the worker consumes and RIVAL_QUEUES names, or that it consumes beside RIVAL_QUEUE. None: it
    consumes none of them."""
    wanted = split_queues(settings.queues)
    named = wanted if wanted else (DEFAULT_QUEUE, *filter(is_queue, sorted(consumed)))
    served = [name for name in named if broker_queue(name, settings.queue) in consumed]
    is_there = served if wanted else settings.queue in consumed
    return settings.with_(queues=",".join(served)) if is_there else None


def _broker(app: Celery) -> str | None:
    """None: the app has none, so Celery would take its default, but commands that only read need no broker."""
    url = app.conf.broker_write_url
    return url if url is None or isinstance(url, str) else ";".join(url)


def _pool(pool: Any) -> str:
    """prefork, threads or solo; other pools are not tested."""
    name = str(get_implementation(pool).__module__).rpartition(".")[2]
    known = {"prefork": "prefork", "thread": "threads", "solo": "solo"}
    if name not in known:
        raise ConfigurationError(
            f"Rival does not run on the {name} pool. Use prefork, threads or solo, or start `rival worker` beside."
        )
    return known[name]


def _check_app(app: Celery) -> None:
    """Checks the settings of the app without which no message would arrive."""
    if not {"json", "application/json"} & set(app.conf.accept_content):
        raise ConfigurationError("Rival's messages are JSON: add 'json' to the app's accept_content.")
    secure = (_broker(app) or "").partition("://")[0] in ("rediss", "amqps")
    if app.conf.broker_use_ssl and not secure:
        raise ConfigurationError(
            "The app has broker_use_ssl, but producers know the broker by its URL alone: write it as rediss://… or "
            "amqps://…, with ssl_cert_reqs and other options in its query."
        )
