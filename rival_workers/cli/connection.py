"""The servers that a command uses: from the environment, from a `rival dev` in this folder, or from the Celery app for
which the command was called. `rival dev` uses its own, or those of RIVAL_DATABASE_URL and RIVAL_BROKER_URL.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import TypeVar

from rival_client.api.client import Rival
from rival_client.db.database import Database
from rival_client.errors import ConfigurationError
from rival_client.settings import Settings, masked, variable_of
from rival_workers.dev.announcement import is_of_stack, is_running, running_dev
from rival_workers.settings import WorkerSettings

DIRECTORY = Path(".rival")
#: Setting -> the server.
_SERVERS = {"database_url": "Database", "broker_url": "Broker"}

S = TypeVar("S", bound=Settings)

#: With `celery -A app rival …`: the settings of its `install(app)`, instead of the environment's.
of_app: WorkerSettings | None = None


def resolved(kind: type[S]) -> S:
    """The given settings; missing URLs are taken from a running `rival dev` with the same database."""
    dev = running_dev(DIRECTORY)
    given = _given(kind, of_app, of_rival=dev is not None)
    if dev is not None and given.database_url in (None, dev.database_url):
        return given.with_(database_url=dev.database_url, broker_url=given.broker_url or dev.broker_url)
    return _given(kind, of_app, of_rival=False)


def _given(kind: type[S], app: WorkerSettings | None, of_rival: bool) -> S:
    """`of_rival`: without DATABASE_URL and CELERY_BROKER_URL, which `rival dev` does not use either."""
    if app is not None:
        return kind(**{one.name: getattr(app, one.name) for one in fields(kind)})
    return kind.of_rival_variables() if of_rival else kind.from_env()


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


def dev_settings() -> WorkerSettings:
    """DATABASE_URL and CELERY_BROKER_URL are the servers of other programs; with `celery -A app`, RIVAL_DATABASE_URL
    and RIVAL_BROKER_URL are those of the app's workers. A stack for development must not join them."""
    given = WorkerSettings.of_rival_variables()
    if of_app is not None:
        return given.with_(database_url=None, broker_url=None)
    _refuse_stopped_stack(given)
    return given


def _refuse_stopped_stack(given: WorkerSettings) -> None:
    """The variables that an earlier `rival dev` has printed, in a shell that has outlived it."""
    urls = {name: getattr(given, name) for name in _SERVERS}
    own = [variable_of(name) or name for name, url in urls.items() if url and is_of_stack(DIRECTORY, url)]
    if own and running_dev(DIRECTORY) is None and not is_running(DIRECTORY):
        raise ConfigurationError(
            f"{' and '.join(own)}: these servers are of an earlier `rival dev` in this folder, which has stopped. "
            f"Without the variables `rival dev` starts them again: `unset {' '.join(own)}`."
        )


def server_lines(given: WorkerSettings) -> Iterator[str]:
    """For each server, which one it is and why."""
    for name, server in _SERVERS.items():
        url, variable = getattr(given, name), variable_of(name)
        if url is not None:
            yield f"{server}: {masked(url)}, since {variable} is set"
        elif variable is not None:
            yield f"{server}: its own, in {DIRECTORY}/; {variable} is not used{_why_not(name)}"
        else:
            yield f"{server}: its own, in {DIRECTORY}/"


def _why_not(name: str) -> str:
    if of_app is not None:
        return ": it is for the workers of the app"
    return f", only RIVAL_{name.upper()} is"
