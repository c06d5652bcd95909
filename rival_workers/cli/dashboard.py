"""`rival dashboard`: the dashboard in a process of its own, and its users."""

from __future__ import annotations

import ipaddress
import time
import webbrowser
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from rival_workers.cli.connection import DIRECTORY, open_rival, resolved
from rival_workers.cli.dashboard_launch import require_extra
from rival_workers.settings import WorkerSettings

if TYPE_CHECKING:
    from rival_workers.dashboard.roles import Role
    from rival_workers.dashboard.sessions import Proxy
    from rival_workers.dashboard.users import Users

F = TypeVar("F", bound=Callable[..., Any])

_ROLES = click.Choice(["viewer", "operator", "admin"])
_directory = click.option(
    "--directory",
    type=click.Path(path_type=Path),
    default=DIRECTORY / "dashboard",
    help="Where its key, users and tokens are.",
)


# -- proxy ------------------------------------------------------------------------------------------------

_PROXY_NAMES = ("user_header", "groups_header", "groups", "proxy_role")


def _networks(_: click.Context, __: click.Parameter, given: tuple[str, ...]) -> tuple[str, ...]:
    for one in given:
        try:
            ipaddress.ip_network(one)
        except ValueError as error:
            raise click.BadParameter(f"{error}: give an address or a network, 10.0.0.0/8") from None
    return given


def _roles(_: click.Context, __: click.Parameter, given: tuple[str, ...]) -> dict[str, str]:
    found = dict(one.rpartition("=")[::2] for one in given)
    for group, role in found.items():
        if not group or role not in _ROLES.choices:
            raise click.BadParameter(f"{group}={role}: give GROUP=ROLE, with one of {', '.join(_ROLES.choices)}")
    return found


def _proxy_options(command: F) -> F:
    for option in (
        click.option(
            "--proxy-role", type=_ROLES, default="viewer", help="The role of its users, without --groups-header."
        ),
        click.option(
            "--group",
            "groups",
            multiple=True,
            metavar="GROUP=ROLE",
            callback=_roles,
            help="The role of a group, as in sre=admin; repeatable.",
        ),
        click.option("--groups-header", metavar="NAME", help="The header in which the proxy lists the user's groups."),
        click.option(
            "--user-header", metavar="NAME", help="The header in which the proxy names the user that it has logged in."
        ),
        click.option(
            "--trusted-proxy",
            "trusted",
            multiple=True,
            metavar="CIDR",
            callback=_networks,
            help="Trust these headers of a proxy at this address: X-Forwarded-Host, -Proto, -Prefix, -For. Repeatable.",
        ),
    ):
        command = option(command)
    return command


def _proxy(
    settings: WorkerSettings,
    user_header: str | None,
    groups_header: str | None,
    groups: dict[str, Role],
    role: Role,
    *,
    trusted: tuple[str, ...],
) -> Proxy | None:
    """Headers that name the user need the addresses of the proxy and its secret."""
    if user_header is None:
        if groups_header or groups:
            raise click.UsageError("--groups-header and --group need --user-header")
        return None
    if not trusted or not settings.proxy_secret:
        raise click.UsageError("--user-header needs --trusted-proxy, and RIVAL_PROXY_SECRET in the environment")
    if (groups_header is None) != (not groups):
        raise click.UsageError("--groups-header and --group need each other")
    from rival_workers.dashboard.sessions import Proxy

    lowered = None if groups_header is None else groups_header.lower()
    return Proxy(trusted, settings.proxy_secret, user_header.lower(), lowered, groups, role)


@click.group(invoke_without_command=True)
@click.option("--port", type=click.IntRange(0, 65_535), default=8233, help="The port; 0: any free one.")
@click.option("--listen", default="127.0.0.1", help="The address. Beyond this machine it needs users or a proxy.")
@click.option("--allow-host", multiple=True, help="Another host name under which browsers may reach it; repeatable.")
@click.option("--read-only", is_flag=True, help="No button and no call changes anything.")
@click.option("--open", "opens", is_flag=True, help="Open it in a browser.")
@_proxy_options
@_directory
@click.pass_context
def dashboard(context: click.Context, /, allow_host: tuple[str, ...], opens: bool, **options: Any) -> None:
    """Show runs, workflows and the fleet in a browser, and act on them."""
    require_extra()
    if context.invoked_subcommand is not None:
        return
    from rival_workers.dashboard.launch import Launch

    settings = resolved(WorkerSettings)
    proxy = _proxy(settings, *(options.pop(name) for name in _PROXY_NAMES), trusted=options["trusted"])
    launch = Launch(settings, allowed=allow_host, proxy=proxy, **options)
    with open_rival() as rival, launch.opened(rival) as server:
        click.echo(f"Dashboard: {server.link}")
        if opens:
            webbrowser.open(server.link)
        server.run()


@dashboard.group()
def user() -> None:
    """Add, list and remove users, who log in with a password."""


@user.command()
@click.argument("name")
@click.option("--role", type=_ROLES, default="viewer", help="What the user may do.")
@click.password_option(help="Asked for if it is not given.")
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
    click.echo(f"removed {name}" if removed else f"unknown user {name}")
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
@click.option("--role", type=_ROLES, default="viewer", help="What the script may do.")
@click.option("--days", type=click.FloatRange(min=0.0), default=0.0, help="How long it is valid; 0: for ever.")
@_directory
def token(name: str, role: Role, days: float, directory: Path) -> None:
    """Make a bearer token for a script. It is printed once."""
    expires = time.time() + days * 86_400 if days else None
    click.echo(_users(directory).add_token(name, role, expires))


def _users(directory: Path) -> Users:
    from rival_workers.dashboard.users import Users

    return Users(directory / "users.toml")
