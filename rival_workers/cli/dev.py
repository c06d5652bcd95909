"""`rival dev`: an embedded Postgres and Redis and a fleet on top, for as long as a developer needs them."""

from __future__ import annotations

import contextlib
import logging
import signal
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from rival_client.db.database import Database
from rival_workers.cli.connection import DIRECTORY
from rival_workers.cli.load_check import workflow_names
from rival_workers.cli.output import json_option, print_json
from rival_workers.cli.worker import Hands, hands_options, with_workflows, workflows_option
from rival_workers.dev.board import Places
from rival_workers.dev.locks import is_locked
from rival_workers.dev.note import Announcement, DevNote, running_dev
from rival_workers.dev.stack import open_stack
from rival_workers.dev.waiting import wait_until
from rival_workers.settings import WorkerSettings
from rival_workers.store import migrations

log = logging.getLogger("rival.dev")

#: Postgres' fast shutdown takes a moment; more than this means that somebody else uses the servers too.
_STOPPING = 10.0


@dataclass(frozen=True)
class Up:
    """What there is once the servers answer."""

    settings: WorkerSettings
    names: list[str]
    shared: bool
    processes: int


@click.command()
@workflows_option
@hands_options(processes=2, events=True, reload=True)
@json_option
def dev(paths: Sequence[str], as_json: bool, **options: Any) -> int:
    """Keep a Postgres, a Redis and some workers up for your own workflows, until Ctrl-C.

    The servers are embedded, their data is in ./.rival and survives. RIVAL_DATABASE_URL and RIVAL_BROKER_URL take
    their place when set. Without --workflows (or RIVAL_WORKFLOWS, or ./workflows) there are servers but no workers.
    """
    _take_signals()
    hands = Hands(**options)
    settings = hands.prepared(_with_default_workflows(with_workflows(WorkerSettings.from_env(), paths)))
    names = workflow_names(settings.workflow_paths, settings.environment()) if settings.workflow_paths else []
    shared = running_dev(DIRECTORY) is not None
    with open_stack(DIRECTORY, database_url=settings.database_url, broker_url=settings.broker_url) as stack:
        settings = settings.with_(database_url=stack.database_url, broker_url=stack.broker_url)
        stack.directory.mkdir(mode=0o700, exist_ok=True)
        with Announcement(stack.directory, DevNote(stack.database_url, stack.broker_url)):
            _migrate(stack.database_url)
            _tell(Up(settings, names, shared, hands.processes if names else 0), as_json)
            code = hands.fleet(settings).run() if names else _until_told()
    _wait_for_the_servers_end(stack.directory)
    return code


def _take_signals() -> None:
    """From the start on, so that nothing stays behind. Shells start background jobs with SIGINT ignored."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)


def _with_default_workflows(settings: WorkerSettings) -> WorkerSettings:
    if settings.workflow_paths or not Path("workflows").is_dir():
        return settings
    return settings.with_(workflows="workflows")


def _migrate(database_url: str) -> None:
    database = Database(database_url)
    try:
        migrations.upgrade(database)
    finally:
        database.dispose()


def _until_told() -> int:
    """Servers without workers: wait for SIGINT or SIGTERM."""
    with contextlib.suppress(KeyboardInterrupt):
        threading.Event().wait()
    return 0


def _wait_for_the_servers_end(directory: Path) -> None:
    """So that nothing runs any more when the command has ended, unless another `rival dev` shares the servers."""
    places = Places(directory)
    if running_dev(directory) is not None:
        log.info("the servers stay up for the other `rival dev` in this folder")
    elif places.supervisor_lock.exists():
        wait_until(lambda: not is_locked(places.supervisor_lock), _STOPPING)


def _tell(up: Up, as_json: bool) -> None:
    if as_json:
        print_json(
            {"database_url": up.settings.database_url, "broker_url": up.settings.broker_url, "shared": up.shared,
             "processes": up.processes, "workflows": up.names}
        )  # fmt: skip
        return
    an_example = up.names[0] if up.names else "NAME"
    shared = "\nShared: another `rival dev` runs in this folder; this one uses its servers and adds workers.\n"
    click.echo(f"""{shared if up.shared else ""}
Rival is up: {_workers(up)}

  export RIVAL_DATABASE_URL='{up.settings.database_url}'
  export RIVAL_BROKER_URL='{up.settings.broker_url}'

In this folder the commands below find it without that, too:

  rival run {an_example} '{{}}' --wait
  rival ls; rival show RUN; rival doctor
  rival flower      (every attempt, at http://127.0.0.1:5555)

Ctrl-C stops it; the data stays in {DIRECTORY}/.
""")


def _workers(up: Up) -> str:
    if not up.names:
        return "a database and a broker, no workers (say --workflows PATH for some)."
    return f"{up.processes} worker processes with {', '.join(up.names)}."
