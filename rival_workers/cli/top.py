"""`rival top`: the fleet and its runs, read again and again. All reads are bounded and read-only."""

from __future__ import annotations

import dataclasses
import sys
import time
from typing import Any

import click
from rich.console import Group

from rival_client.db.read_only import ReadOnlyDatabase
from rival_client.settings import Settings
from rival_workers.cli.connection import resolved
from rival_workers.cli.display.fleet_page import header, page_of, sections
from rival_workers.cli.display.full_screen import FullScreen
from rival_workers.cli.display.output import console, json_option, print_json, print_json_line
from rival_workers.cli.fleet_snapshot import Overview, age_of, read_overview


@click.command()
@click.option("--interval", type=click.FloatRange(min=0.5), default=2.0, metavar="SECONDS", help="Between two reads.")
@click.option("--once", is_flag=True, help="Print it once; the default without a terminal.")
@json_option
def top(interval: float, once: bool, as_json: bool) -> int:
    """Watch the fleet: workers, queues, open runs, the slowest steps, and what waits for limits and breakers."""
    out = console()
    database = ReadOnlyDatabase(resolved(Settings).require_database(), pool_size=1)
    try:
        if as_json:
            _print_json(database, interval, once)
        elif once or not (out.is_terminal and sys.stdin.isatty()):
            found = read_overview(database)
            out.print(Group(*header(found), *sections(found)))
        else:
            FullScreen(out, interval, lambda: page_of(read_overview(database))).run()
    finally:
        database.dispose()
    return 0


def _print_json(database: ReadOnlyDatabase, interval: float, once: bool) -> None:
    """One object, or one per line until Ctrl-C."""
    if once:
        print_json(_as_json(read_overview(database)))
        return
    while True:
        print_json_line(_as_json(read_overview(database)))
        time.sleep(interval)


def _as_json(found: Overview) -> dict[str, Any]:
    return dataclasses.asdict(found) | {"slowest": [one | {"seconds": age_of(found, one)} for one in found.slowest]}
