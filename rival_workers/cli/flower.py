"""`rival flower`: Celery's monitor on Rival's broker."""

from __future__ import annotations

import importlib.util
import os
import sys

import click

from rival_client.errors import ConfigurationError
from rival_workers.cli.connection import resolved
from rival_workers.settings import WorkerSettings


@click.command()
@click.option("--port", type=click.IntRange(1, 65_535), default=5555)
@click.option("--address", default="127.0.0.1", help="Flower has no login of its own: keep it here.")
def flower(port: int, address: str) -> None:
    """Watch every attempt in Flower, beside `rival dev` or on RIVAL_BROKER_URL."""
    if importlib.util.find_spec("flower") is None:
        raise ConfigurationError("Flower is not installed: pip install 'rival-workflows[flower]'.")
    settings = resolved(WorkerSettings)
    if not settings.broker_url:
        raise ConfigurationError("No broker is given. Start `rival dev` in this folder, or set RIVAL_BROKER_URL.")
    click.echo(f"Flower: http://{address}:{port}", err=True)
    # The URL holds a password: arguments would show it to everybody's `ps`.
    env = settings.environment() | {"BROKER_URL": settings.broker_url}
    command = [sys.executable, "-m", "celery", "flower", f"--address={address}", f"--port={port}"]
    os.execve(sys.executable, command, env)
