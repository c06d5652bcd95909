"""`install(app)`: the workers of a Celery app that a team has already run Rival's workflows beside its own tasks.

Nothing of the app's settings is changed, and nothing is loaded or connected before a worker starts: producers import
the app, too.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from celery import Celery, signals
from celery.concurrency import get_implementation

from rival_client.errors import ConfigurationError, RivalError
from rival_workers.definition.files import register_paths
from rival_workers.definition.registry import default_registry
from rival_workers.settings import WorkerSettings, masked

if TYPE_CHECKING:
    from rival_workers.runtime.celery.lifecycle import WorkerLifecycle

log = logging.getLogger("rival.worker")

Paths = str | Path | Sequence[str | Path]

#: What an app may have set for all of its tasks does not hold for Rival's. Timeouts are a step's own: a year is no
#: limit, while None would mean the app's.
_YEAR = 365 * 86_400
GUEST_OPTIONS: dict[str, Any] = {
    "acks_late": False, "reject_on_worker_lost": False, "retry_on_worker_lost": False, "track_started": False,
    "store_errors_even_if_ignored": False, "rate_limit": 0, "time_limit": _YEAR, "soft_time_limit": _YEAR,
}  # fmt: skip
#: Those of the app: Rival rings where the app's workers listen.
_THE_APPS = ("broker_url", "key_prefix")


def install(app: Celery, *, workflows: Paths = (), settings: Mapping[str, Any] | None = None) -> None:
    """Let the workers of this app that listen to Rival's queue (`-Q celery,rival`) run workflows, too.

    `workflows`: files and directories (default: RIVAL_WORKFLOWS). What the app's own modules have registered is known
    as well. `settings`: a worker's settings by name, over those of the environment.
    """
    given = dict(settings or {})
    _refuse_unknown(given)
    guest = Guest(app, [workflows] if isinstance(workflows, str | Path) else list(workflows), given)
    signals.worker_init.connect(guest.on_worker_init, weak=False, dispatch_uid=f"rival-{id(app)}")


def _refuse_unknown(given: Mapping[str, Any]) -> None:
    known = {field.name for field in fields(WorkerSettings)} - {*_THE_APPS, "workflows"}
    for name in given:
        if name in _THE_APPS:
            raise ConfigurationError(f"install(settings=…): leave {name} out, it is the Celery app's own.")
        if name not in known:
            raise ConfigurationError(f"install(settings=…): unknown setting {name!r}; known are {sorted(known)}.")


class Guest:
    """Rival in somebody else's worker. It never ends the process once the worker runs: that has other work, too."""

    def __init__(self, app: Celery, workflows: Sequence[str | Path], given: Mapping[str, Any]) -> None:
        self._app, self._workflows, self._given = app, workflows, given

    def on_worker_init(self, sender: Any, **_: Any) -> None:
        if sender.app is not self._app:
            return
        try:
            self._settle_in(sender)
        except RivalError as error:
            # Celery would only log what a receiver raises, and go on without Rival.
            raise SystemExit(f"rival: {error}") from error

    def _settle_in(self, worker: Any) -> None:
        settings = self._settings()
        if settings.queue not in self._app.amqp.queues.consume_from:
            said = f"this worker does not listen to queue {settings.queue!r}: it runs no workflows"
            signals.worker_ready.connect(lambda **_: log.info(said), weak=False)
            return
        _check(self._app)
        register_paths(self._workflows or settings.workflow_paths)
        if not len(default_registry):
            raise ConfigurationError("No workflows are given. Say where they are: install(app, workflows=…).")
        self._lifecycle(worker, settings).join()

    def _lifecycle(self, worker: Any, settings: WorkerSettings) -> WorkerLifecycle:
        # Here, since it brings the store and Alembic with it, which no producer needs.
        from rival_workers.runtime.celery.lifecycle import WorkerLifecycle

        forks = _pool(worker.pool_cls) == "prefork"
        lifecycle = WorkerLifecycle(
            self._app, settings, default_registry, forks=forks, name=worker.hostname, **GUEST_OPTIONS
        )  # fmt: skip
        names = ", ".join(sorted(workflow.name for workflow in default_registry))
        lifecycle.when_ready = lambda: log.info("worker %s runs workflows, too: %s", worker.hostname, names)
        return lifecycle

    def _settings(self) -> WorkerSettings:
        found = WorkerSettings.from_env(**self._given)
        url = _broker(self._app)
        if found.broker_url not in (None, url):
            log.warning("RIVAL_BROKER_URL is %s, but this worker listens at %s: so it rings there, and producers must",
                        masked(found.broker_url), masked(url))  # fmt: skip
        prefix = (self._app.conf.broker_transport_options or {}).get("global_keyprefix", "")
        paths = os.pathsep.join(map(str, self._workflows)) or found.workflows
        return found.with_(broker_url=url, key_prefix=prefix, workflows=paths)


def _broker(app: Celery) -> str:
    url = app.conf.broker_write_url
    return url if isinstance(url, str) else ";".join(url)


def _pool(pool: Any) -> str:
    """prefork, threads or solo; others have not been tried."""
    name = str(get_implementation(pool).__module__).rpartition(".")[2]
    known = {"prefork": "prefork", "thread": "threads", "solo": "solo"}
    if name not in known:
        raise ConfigurationError(
            f"Rival does not run on the {name} pool. Use prefork, threads or solo, or start `rival worker` beside."
        )
    return known[name]


def _check(app: Celery) -> None:
    """The few settings of the app without which no ring would arrive."""
    if not {"json", "application/json"} & set(app.conf.accept_content):
        raise ConfigurationError("Rival's messages are JSON: add 'json' to the app's accept_content.")
    secure = _broker(app).partition("://")[0] in ("rediss", "amqps")
    if app.conf.broker_use_ssl and not secure:
        raise ConfigurationError(
            "The app has broker_use_ssl, but producers know the broker by its URL alone: write it as rediss://… or "
            "amqps://…, with ssl_cert_reqs and the like in its query."
        )
