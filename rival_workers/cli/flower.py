"""`rival flower`: Celery's monitor on Rival's broker.

The command starts this module as a program: Flower with one page changed, so that it links to the dashboard.
"""

from __future__ import annotations

import importlib.util
import os
import re
import runpy
import socket
import sys
from typing import Any
from urllib.parse import urlencode

import click

from rival_client.errors import ConfigurationError
from rival_workers.cli.connection import resolved
from rival_workers.cli.entry import install_command
from rival_workers.settings import WorkerSettings

#: The id of a run that can be a part of a path as it is.
_PLAIN = re.compile(r"(?!\.+$)[A-Za-z0-9._-]+")


@click.command()
@click.option("--port", type=click.IntRange(1, 65_535), default=5555, help="The port.")
@click.option("--address", default="127.0.0.1", help="The address. Keep Flower on the local host: it has no login.")
def flower(port: int, address: str) -> None:
    """Watch every attempt in Flower, beside `rival dev` or on RIVAL_BROKER_URL."""
    if importlib.util.find_spec("flower") is None:
        raise ConfigurationError(f"Flower is not installed: {install_command('flower')}.")
    settings = resolved(WorkerSettings)
    if not settings.broker_url:
        raise ConfigurationError("No broker is given. Start `rival dev` in this folder, or set RIVAL_BROKER_URL.")
    _require_free(address, port)
    click.echo(f"Flower: http://{address}:{port}", err=True)
    if settings.dashboard_url is None:
        click.echo("The id of a task, in the search of `rival dashboard`, opens its attempt.", err=True)
    # The URL contains a password: `ps` would show it to all users as an argument.
    env = settings.environment() | {"BROKER_URL": settings.broker_url, "CELERY_BROKER_URL": settings.broker_url}
    command = [sys.executable, "-m", "rival_workers.cli.flower", f"--address={address}", f"--port={port}"]
    os.execve(sys.executable, command, env)


def _require_free(address: str, port: int) -> None:
    """Without this check Flower ends with a traceback that does not name the port."""
    try:
        [(family, kind, proto, _, place), *_] = socket.getaddrinfo(
            address or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        with socket.socket(family, kind, proto) as probe:
            # Like Flower: ignore connections of a server that has just ended.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(place)
            # On some systems two processes can bind, and only one can listen.
            probe.listen(1)
    except OSError as error:
        raise ConfigurationError(
            f"Flower cannot listen at {address}:{port} ({error.strerror}). Another Flower may be running there "
            "already; choose another port with --port."
        ) from error


def run_url(dashboard: str, task_id: str) -> str:
    """Where the dashboard shows a task that Flower does not know: a run, or an attempt from before Flower started. Its
    search opens an attempt, and finds runs whatever their ids contain."""
    page = f"/{task_id}" if _PLAIN.fullmatch(task_id) else f"?{urlencode({'q': task_id})}"
    return f"{dashboard.rstrip('/')}/runs{page}"


def link_to(dashboard: str) -> None:
    """On the page of a task, Flower links the root and the parent to their pages. Of an attempt both are the run, which
    is not a task, so that Flower has no page for it."""
    from flower.urls import handlers
    from flower.utils.tasks import get_task_by_id
    from flower.views.tasks import TaskView
    from tornado.web import authenticated, url

    class TaskOrRunView(TaskView):  # type: ignore[misc]
        @authenticated
        def get(self, task_id: str) -> Any:
            if get_task_by_id(self.application.events, task_id) is None:
                return self.redirect(run_url(dashboard, task_id))
            return super().get(task_id)

    [at] = [number for number, one in enumerate(handlers) if getattr(one, "name", None) == "task"]
    handlers[at] = url(handlers[at].regex.pattern, TaskOrRunView, name="task")


def serve() -> None:
    """Runs `python -m celery flower` in this process, with its arguments."""
    dashboard = WorkerSettings.from_env().dashboard_url
    if dashboard is not None:
        link_to(dashboard)
    sys.argv = ["celery", "flower", *sys.argv[1:]]
    runpy.run_module("celery", run_name="__main__")


if __name__ == "__main__":
    serve()
