"""`rival db`: upgrades the schema of the database, and prints its version."""

from __future__ import annotations

import click

from rival_workers.cli.connection import open_database
from rival_workers.cli.display.output import json_option, print_json
from rival_workers.store import migrations


@click.group()
def db() -> None:
    """Upgrade the schema of the database, or print its version."""


@db.command()
@json_option
def upgrade(as_json: bool) -> None:
    """Bring the schema up to date. Safe while workers run, and when several processes do it at once."""
    with open_database() as database:
        before = migrations.version(database)
        after = migrations.upgrade(database)
    if as_json:
        print_json({"before": before, "version": after, "head": after})
    else:
        click.echo(f"the schema is at {after}" + ("" if before == after else f" (was at {before or 'nothing'})"))


@db.command()
@json_option
def version(as_json: bool) -> None:
    """Print the version of the schema, and the version that this Rival needs."""
    with open_database() as database:
        found, head = migrations.version(database), migrations.head()
    if as_json:
        print_json({"version": found, "head": head, "current": found == head})
    elif found == head:
        click.echo(f"{found} (up to date)")
    else:
        click.echo(f"{found or 'nothing'}; this Rival needs {head}: run `rival db upgrade`")
