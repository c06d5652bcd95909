"""The servers that a command uses: from the environment, from a `rival dev` in this folder, or from the Celery app for
which the command was called.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import TypeVar

from rival_client.api.client import Rival
from rival_client.db.database import Database
from rival_client.settings import Settings
from rival_workers.dev.announcement import running_dev
from rival_workers.settings import WorkerSettings

DIRECTORY = Path(".rival")

S = TypeVar("S", bound=Settings)

#: With `celery -A app rival …`: the settings of its `install(app)`, instead of the environment's.
of_app: WorkerSettings | None = None


def resolved(kind: type[S]) -> S:
    """The given settings; missing URLs are taken from a running `rival dev` with the same database."""
    given = kind.from_env() if of_app is None else kind(**{one.name: getattr(of_app, one.name) for one in fields(kind)})
    dev = running_dev(DIRECTORY)
    if dev is None or given.database_url not in (None, dev.database_url):
        return given
    return given.with_(database_url=dev.database_url, broker_url=given.broker_url or dev.broker_url)


@contextmanager
def open_rival() -> Iterator[Rival]:
    with Rival(settings=resolved(Settings)) as rival:
        yield rival


@contextmanager
def open_database() -> Iterator[Database]:
    database = Database(resolved(Settings).require_database())
    try:
        yield database
    finally:
        database.dispose()
