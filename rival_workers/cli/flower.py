"""`rival flower`: Celery's monitor on Rival's broker."""

from __future__ import annotations

import importlib.util
import os
import socket
import sys

import click

from rival_client.errors import ConfigurationError
from rival_workers.cli.connection import resolved
from rival_workers.cli.entry import install_command
from rival_workers.settings import WorkerSettings


@click.command()
@click.option("--port", type=click.IntRange(1, 65_535), default=5555)
@click.option("--address", default="127.0.0.1", help="Keep Flower on the local host: it has no login.")
def flower(port: int, address: str) -> None:
    """Watch every attempt in Flower, beside `rival dev` or on RIVAL_BROKER_URL."""
    if importlib.util.find_spec("flower") is None:
        raise ConfigurationError(f"Flower is not installed: {install_command('flower')}.")
    settings = resolved(WorkerSettings)
    if not settings.broker_url:
        raise ConfigurationError("No broker is given. Start `rival dev` in this folder, or set RIVAL_BROKER_URL.")
    _require_free(address, port)
    click.echo(f"Flower: http://{address}:{port}", err=True)
    click.echo("The id of a task, in the search of `rival dashboard`, opens its attempt.", err=True)
    # The URL contains a password: `ps` would show it to all users as an argument.
    env = settings.environment() | {"BROKER_URL": settings.broker_url}
    command = [sys.executable, "-m", "celery", "flower", f"--address={address}", f"--port={port}"]
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
