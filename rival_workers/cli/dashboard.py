"""`rival dashboard`: the dashboard in a process of its own, and its users."""

from __future__ import annotations

import importlib.util
import time
import webbrowser
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rival_client.api.client import Rival
from rival_client.errors import ConfigurationError
from rival_workers.cli.connection import DIRECTORY, open_rival, resolved
from rival_workers.settings import WorkerSettings

if TYPE_CHECKING:
    from rival_workers.dashboard.roles import Role
    from rival_workers.dashboard.users import Users

_ROLES = click.Choice(["viewer", "operator", "admin"])
_directory = click.option(
    "--directory",
    type=click.Path(path_type=Path),
    default=DIRECTORY / "dashboard",
    help="Its key, users and tokens.",
)


def is_installed() -> bool:
    return all(importlib.util.find_spec(name) is not None for name in ("starlette", "uvicorn"))


@contextmanager
def beside(settings: WorkerSettings, opens: bool, directory: Path = DIRECTORY / "dashboard") -> Iterator[str]:
    """The dashboard in a thread of this process, at its usual port or, when that is taken, at any; its link."""
    from rival_workers.dashboard.launch import PORT, Launch

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
        raise ConfigurationError("The dashboard is not installed: pip install 'rival-workflows[workers,dashboard]'.")


@click.group(invoke_without_command=True)
@click.option("--port", type=click.IntRange(0, 65_535), default=8233, help="0: any free one.")
@click.option("--listen", default="127.0.0.1", help="The address. Beyond this machine it needs users or a proxy.")
@click.option("--allow-host", multiple=True, help="A further name under which browsers ask for it.")
@click.option("--read-only", is_flag=True, help="No button and no call changes anything.")
@click.option("--open", "opens", is_flag=True, help="Open it in a browser.")
@_directory
@click.pass_context
def dashboard(
    context: click.Context,
    port: int,
    listen: str,
    allow_host: tuple[str, ...],
    read_only: bool,
    opens: bool,
    directory: Path,
) -> None:
    """Show runs, workflows and the fleet in a browser, and act on them."""
    require_extra()
    if context.invoked_subcommand is not None:
        return
    from rival_workers.dashboard.launch import Launch

    launch = Launch(
        resolved(WorkerSettings), listen=listen, port=port, allowed=allow_host, read_only=read_only, directory=directory
    )
    with open_rival() as rival, launch.opened(rival) as server:
        click.echo(f"Dashboard: {server.link}")
        if opens:
            webbrowser.open(server.link)
        server.run()


@dashboard.group()
def user() -> None:
    """Users who log in with a password."""


@user.command()
@click.argument("name")
@click.option("--role", type=_ROLES, default="viewer")
@click.password_option()
@_directory
def add(name: str, role: Role, password: str, directory: Path) -> None:
    """Add a user, or change the password and role of one."""
    _users(directory).add(name, password, role)
    click.echo(f"{name}: {role}")


@user.command()
@click.argument("name")
@_directory
def rm(name: str, directory: Path) -> int:
    """Remove a user. Open sessions end at once."""
    removed = _users(directory).remove(name)
    click.echo(f"removed {name}" if removed else f"there is no user {name}")
    return 0 if removed else 1


@user.command("ls")
@_directory
def list_(directory: Path) -> None:
    """List users."""
    users = _users(directory)
    for name in users.names:
        known = users.named(name)
        click.echo(f"{name}  {known.role if known else ''}")


@dashboard.command()
@click.argument("name")
@click.option("--role", type=_ROLES, default="viewer")
@click.option("--days", type=click.FloatRange(min=0.0), default=0.0, help="How long it is valid; 0: for ever.")
@_directory
def token(name: str, role: Role, days: float, directory: Path) -> None:
    """Make a bearer token for a script. It is printed once."""
    expires = time.time() + days * 86_400 if days else None
    click.echo(_users(directory).add_token(name, role, expires))


def _users(directory: Path) -> Users:
    from rival_workers.dashboard.users import Users

    return Users(directory / "users.toml")
