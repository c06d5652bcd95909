"""Starts the dashboard beside other commands, if it is installed."""

from __future__ import annotations

import importlib.util
import webbrowser
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from rival_client.api.client import Rival
from rival_client.errors import ConfigurationError
from rival_workers.cli.connection import DIRECTORY
from rival_workers.cli.entry import install_command
from rival_workers.settings import WorkerSettings


def is_installed() -> bool:
    return all(importlib.util.find_spec(name) is not None for name in ("starlette", "uvicorn"))


@contextmanager
def beside(settings: WorkerSettings, opens: bool, directory: Path = DIRECTORY / "dashboard") -> Iterator[str]:
    """The dashboard in a thread of this process, at its usual port or, when that is taken, at any; its link."""
    from rival_workers.dashboard.launch import PORT, Launch

    # A replica is one of a database that was there before.
    settings = settings.with_(dashboard_database_url=None)
    with Rival(settings=settings) as rival, ExitStack() as stack:
        try:
            server = stack.enter_context(Launch(settings, port=PORT, directory=directory).opened(rival))
        except ConfigurationError:
            server = stack.enter_context(Launch(settings, port=0, directory=directory).opened(rival))
        stack.enter_context(server.in_background())
        if opens:
            webbrowser.open(server.link)
        yield server.link


def require_extra() -> None:
    if not is_installed():
        raise ConfigurationError(f"The dashboard is not installed: {install_command('workers', 'dashboard')}.")
