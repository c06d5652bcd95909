"""`rival limit`: list the limits of steps and runs, show what waits, and change a maximum."""

from __future__ import annotations

import dataclasses
from typing import Any

import click

from rival_client.model.limits.limit_records import LimitDetail, LimitRecord
from rival_workers.cli.completion import complete_limits
from rival_workers.cli.connection import open_rival
from rival_workers.cli.display.formats import time_text
from rival_workers.cli.display.output import console, json_option, print_json, table
from rival_workers.cli.options.operator_options import operator_name


@click.group()
def limit() -> None:
    """List and change limits of steps and runs, which the whole fleet shares."""


@limit.command("ls")
@json_option
def list_(as_json: bool) -> int:
    """List limits with their maximum, the slots in use and how many wait."""
    with open_rival() as rival:
        found = rival.limits()
    if as_json:
        print_json([dataclasses.asdict(one) for one in found])
    elif not found:
        click.echo("no limits")
    else:
        console().print(table(("limit", "allowed", "keys", "used", "waiting", "set by"), map(_row, found)))
    return 0


def _row(one: LimitRecord) -> tuple[Any, ...]:
    set_by = f"{one.set_by} (defined: {one.defined_max})" if one.set_by else ""
    return one.name, _allowed(one), one.keys, one.used, one.waiting, set_by


def _allowed(one: LimitRecord) -> str:
    return f"{one.max} at once" if one.per is None else f"{one.max} per {one.per:g} s"


@limit.command()
@click.argument("name", shell_complete=complete_limits)
@click.option("--key", help="Only this key.")
@json_option
def show(name: str, key: str | None, as_json: bool) -> int:
    """Show what uses limit NAME and what waits for it."""
    with open_rival() as rival:
        found = rival.limit(name, key=key)
    if as_json:
        print_json(dataclasses.asdict(found))
    else:
        _print(found)
    return 0


def _print(found: LimitDetail) -> None:
    one = found.limit
    click.echo(f"{one.name}: {_allowed(one)}, {one.used} in use, {one.waiting} waiting")
    if found.keys:
        rows = ((each.key or "(all)", each.used, each.waiting) for each in found.keys)
        console().print(table(("key", "used", "waiting"), rows))
    if found.waiting:
        waiting = (
            (each.run_id, each.path or "(start)", each.key, time_text(each.since), "may start" if each.granted else "")
            for each in found.waiting
        )
        console().print(table(("run", "step", "key", "since", ""), waiting))


@limit.command("set")
@click.argument("name", shell_complete=complete_limits)
@click.argument("max", type=int)
@json_option
def set_(name: str, max: int, as_json: bool) -> int:
    """Change the maximum of limit NAME to MAX in the whole fleet, until `rival limit rm`. 0: nothing starts."""
    with open_rival() as rival:
        changed = rival.set_limit(name, max, by=operator_name(None))
    return _print_changed(changed, as_json)


@limit.command("rm")
@click.argument("name", shell_complete=complete_limits)
@json_option
def remove(name: str, as_json: bool) -> int:
    """Remove the maximum that `rival limit set` has set: that of the definition applies again."""
    with open_rival() as rival:
        changed = rival.reset_limit(name)
    return _print_changed(changed, as_json)


def _print_changed(changed: LimitRecord, as_json: bool) -> int:
    if as_json:
        print_json(dataclasses.asdict(changed))
    else:
        click.echo(f"{changed.name}: {_allowed(changed)}")
    return 0
