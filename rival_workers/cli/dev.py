"""`rival dev`: an embedded Postgres and Redis with a fleet, until Ctrl-C."""

from __future__ import annotations

import contextlib
import json
import logging
import shlex
import signal
import threading
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from rival_client.db.database import Database
from rival_workers.cli.connection import DIRECTORY, dev_settings, server_lines
from rival_workers.cli.dashboard_launch import beside, is_installed
from rival_workers.cli.display.output import json_option, print_json_line
from rival_workers.cli.load_check import LoadedWorkflow, loaded_workflows
from rival_workers.cli.options.fleet_options import (
    FleetOptions,
    interrupt_on,
    with_fleet_options,
    with_workflows,
    workflows_option,
)
from rival_workers.dev.announcement import Announcement, DevServers, running_dev
from rival_workers.dev.file_lock import is_locked
from rival_workers.dev.stack import open_stack
from rival_workers.dev.stack_paths import StackPaths
from rival_workers.dev.waiting import wait_until
from rival_workers.settings import WorkerSettings
from rival_workers.store import migrations

log = logging.getLogger("rival.dev")

#: Seconds for Postgres' fast shutdown; if it takes longer, another process uses the servers too.
_STOPPING = 10.0


@dataclass(frozen=True)
class Started:
    """What to print once the servers answer."""

    settings: WorkerSettings
    workflows: Mapping[str, LoadedWorkflow]
    shared: bool
    processes: int
    #: The link to the dashboard; None without one.
    dashboard: str | None
    #: For each server, which one it is and why.
    servers: Sequence[str]


@click.command()
@workflows_option
@with_fleet_options(processes=2, events=True, reload=True)
@click.option("--dashboard/--no-dashboard", "with_dashboard", default=True, help="Serve the dashboard, if installed.")
@click.option("--open", "opens", is_flag=True, help="Open the dashboard in a browser.")
@json_option
def dev(paths: Sequence[str], with_dashboard: bool, opens: bool, as_json: bool, **options: Any) -> int:
    """Run a Postgres, a Redis and workers for your own workflows until Ctrl-C.

    The servers are embedded; their data is in ./.rival and survives. RIVAL_DATABASE_URL and RIVAL_BROKER_URL replace
    them when set; DATABASE_URL and CELERY_BROKER_URL do not. Without --workflows (or RIVAL_WORKFLOWS, or ./workflows)
    there are servers but no workers.
    """
    # Before anything is started, so that nothing is left running.
    interrupt_on(signal.SIGINT, signal.SIGTERM)
    fleet_options = FleetOptions(**options)
    given = _with_default_workflows(with_workflows(dev_settings(), paths))
    settings = fleet_options.prepared(given, as_json)
    workflows = loaded_workflows(settings.workflow_paths, settings.environment()) if settings.workflow_paths else {}
    shared = running_dev(DIRECTORY) is not None
    servers = list(server_lines(given))
    if not as_json:
        click.echo("\n".join(servers))
    with open_stack(DIRECTORY, database_url=settings.database_url, broker_url=settings.broker_url) as stack:
        settings = settings.with_(database_url=stack.database_url, broker_url=stack.broker_url)
        stack.directory.mkdir(mode=0o700, exist_ok=True)
        with Announcement(stack.directory, DevServers(stack.database_url, stack.broker_url)):
            _migrate(stack.database_url)
            with _dashboard(settings, with_dashboard, opens) as link:
                processes = fleet_options.processes if workflows else 0
                started = Started(settings, workflows, shared, processes, link, servers)
                _print_started(started, as_json)
                code = fleet_options.fleet(settings).run() if workflows else _until_signal()
    _wait_until_servers_stopped(stack.directory)
    return code


def _dashboard(settings: WorkerSettings, wanted: bool, opens: bool) -> AbstractContextManager[str | None]:
    return beside(settings, opens) if wanted and is_installed() else nullcontext()


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


def _until_signal() -> int:
    """Servers without workers: wait for SIGINT or SIGTERM."""
    with contextlib.suppress(KeyboardInterrupt):
        threading.Event().wait()
    return 0


def _wait_until_servers_stopped(directory: Path) -> None:
    """Nothing may be running when the command has ended, unless another `rival dev` shares the servers."""
    paths = StackPaths(directory)
    if running_dev(directory) is not None:
        log.info("the servers keep running for the other `rival dev` in this folder")
    elif paths.supervisor_lock.exists():
        wait_until(lambda: not is_locked(paths.supervisor_lock), _STOPPING)


def _as_json(started: Started) -> dict[str, Any]:
    return {
        "database_url": started.settings.database_url,
        "broker_url": started.settings.broker_url,
        "shared": started.shared,
        "processes": started.processes,
        "workflows": list(started.workflows),
        "dashboard": started.dashboard,
        "servers": started.servers,
    }


def _print_started(started: Started, as_json: bool) -> None:
    if as_json:
        print_json_line(_as_json(started))
        return
    shared = "\nShared: another `rival dev` runs in this folder; this one uses its servers and adds workers.\n"
    click.echo(f"""{shared if started.shared else ""}
Rival is up: {_workers(started)}
{_dashboard_line(started)}
  export RIVAL_DATABASE_URL='{started.settings.database_url}'
  export RIVAL_BROKER_URL='{started.settings.broker_url}'

In this folder, commands also find it without these variables:

  {_example(started)}
  rival ls; rival show RUN; rival doctor
  rival flower      (every attempt, at http://127.0.0.1:5555)

Ctrl-C stops it; the data stays in {DIRECTORY}/.
""")


def _example(started: Started) -> str:
    name, one = next(iter(started.workflows.items()), ("NAME", None))
    given = json.dumps(one.example if one else {}, ensure_ascii=False)
    return f"rival run {shlex.quote(name)} {shlex.quote(given)} --wait"


def _dashboard_line(started: Started) -> str:
    if started.dashboard is None:
        return ""
    return f"\n  Dashboard: {started.dashboard}\n"


def _workers(started: Started) -> str:
    if not started.workflows:
        return "a database and a broker, no workers (start them with --workflows PATH)."
    return f"{started.processes} worker processes with {', '.join(started.workflows)}."
