"""`rival schedule`: add, list and remove schedules."""

from __future__ import annotations

import dataclasses
from typing import Any, get_args

import click

from rival_client.model.cron import CatchUp
from rival_client.sql.schedules import ScheduleRecord
from rival_workers.cli.completion import complete_workflows
from rival_workers.cli.connection import open_rival
from rival_workers.cli.inputs import json_input
from rival_workers.cli.output import console, json_option, one_line, print_json, table, time_text


@click.group()
def schedule() -> None:
    """Start runs by the clock."""


@schedule.command()
@click.argument("name")
@click.argument("workflow", shell_complete=complete_workflows)
@click.argument("when")
@click.argument("value", metavar="[JSON]", callback=json_input, required=False)
@click.option("--timezone", default="UTC", help="The time zone of the cron expression, as in Europe/Berlin.")
@click.option(
    "--catch-up", type=click.Choice(get_args(CatchUp)), default="none", help="Which missed ticks still get a run."
)
@json_option
def add(name: str, workflow: str, when: str, value: Any, timezone: str, catch_up: CatchUp, as_json: bool) -> int:
    """Run WORKFLOW with the input JSON (or @FILE, or - for standard input) at each tick of WHEN.

    WHEN is a cron expression ("*/5 * * * *") or a number of seconds. The same NAME again changes the schedule.
    """
    with open_rival() as rival:
        try:
            added = rival.schedule(workflow, _when(when), name=name, input=value, timezone=timezone, catch_up=catch_up)
        except ValueError as error:
            raise click.UsageError(str(error)) from error
    if as_json:
        print_json(dataclasses.asdict(added))
    else:
        click.echo(f"{added.name}: {added.workflow} {added.rule}, next at {time_text(added.next_at)}")
    return 0


def _when(text: str) -> str | float:
    try:
        return float(text)
    except ValueError:
        return text


@schedule.command("ls")
@click.option("--workflow", shell_complete=complete_workflows, help="Only schedules of this workflow.")
@json_option
def list_(workflow: str | None, as_json: bool) -> int:
    """List schedules."""
    with open_rival() as rival:
        found = rival.schedules(workflow)
    if as_json:
        print_json([dataclasses.asdict(one) for one in found])
        return 0
    if not found:
        click.echo("no schedules")
        return 0
    columns = ("schedule", "workflow", "when", "catch up", "own", "next", "last", "input", "error")
    console().print(table(columns, map(_row, found)))
    return 0


def _row(one: ScheduleRecord) -> tuple[Any, ...]:
    rule = (one.name, one.workflow, one.rule, one.catch_up, "workflow" if one.own else "")
    return (*rule, time_text(one.next_at), time_text(one.last_at), one_line(one.input), one.error or "")


@schedule.command()
@click.argument("name")
@json_option
def rm(name: str, as_json: bool) -> int:
    """Remove a schedule. Runs that it started continue.

    The next worker that starts adds a workflow's own schedule again.
    """
    with open_rival() as rival:
        removed = rival.unschedule(name)
    if as_json:
        print_json({"name": name, "removed": removed})
    else:
        click.echo(f"removed {name}" if removed else f"there is no schedule {name}")
    return 0 if removed else 1
