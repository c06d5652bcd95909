"""`rival schedule`: add, list, pause, resume, fire, backfill and remove schedules."""

from __future__ import annotations

import dataclasses
import datetime as dt
from typing import Any, get_args

import click

from rival_client import Rival
from rival_client.errors import RunNotFound
from rival_client.model.starts.planned_schedules import CatchUp
from rival_client.model.starts.run_options import RunOptions
from rival_client.sql.reads.schedule_reads import ScheduleRecord
from rival_workers.cli.completion import complete_schedules, complete_workflows
from rival_workers.cli.connection import open_rival
from rival_workers.cli.display.formats import one_line, time_text
from rival_workers.cli.display.output import ProgressLine, console, json_option, print_json, table
from rival_workers.cli.options.inputs import json_input
from rival_workers.cli.options.operator_options import operator_name
from rival_workers.cli.options.start_options import start_options
from rival_workers.cli.options.time_options import since as moment

_COMES_BACK = ": it is the workflow's own, so the next worker that starts adds it again (`rival schedule pause` lasts)"


@click.group()
def schedule() -> None:
    """Add, list, pause, fire and remove schedules, which start runs by the clock."""


@schedule.command()
@click.argument("name")
@click.argument("workflow", shell_complete=complete_workflows)
@click.argument("when")
@click.argument("value", metavar="[JSON]", callback=json_input, required=False)
@click.option("--timezone", default="UTC", help="The time zone of the cron expression, as in Europe/Berlin.")
@click.option(
    "--catch-up", type=click.Choice(get_args(CatchUp)), default="none", help="Which missed ticks still get a run."
)
@start_options
@json_option
def add(
    name: str,
    workflow: str,
    when: str,
    value: Any,
    timezone: str,
    catch_up: CatchUp,
    options: RunOptions,
    as_json: bool,
) -> int:
    """Run WORKFLOW with the input JSON (or @FILE, or - for standard input) at each tick of WHEN.

    WHEN is a cron expression ("*/5 * * * *") or a number of seconds. The same NAME again changes the schedule.
    """
    with open_rival() as rival:
        try:
            added = rival.schedule(
                workflow, _when(when), name=name, input=value, timezone=timezone, catch_up=catch_up, **options
            )
        except ValueError as error:
            raise click.UsageError(str(error)) from error
    if as_json:
        print_json(dataclasses.asdict(added))
    else:
        click.echo(f"{added.name}: {added.workflow} {added.rule}, {_next(added)}")
    return 0


def _next(one: ScheduleRecord) -> str:
    return "paused" if one.next_at is None else f"next at {time_text(one.next_at)}"


def _when(text: str) -> str | float:
    try:
        return float(text)
    except ValueError:
        return text


@schedule.command("ls")
@click.option("--workflow", shell_complete=complete_workflows, help="Only schedules of this workflow.")
@json_option
def list_(workflow: str | None, as_json: bool) -> int:
    """List schedules with their next and last ticks."""
    with open_rival() as rival:
        found = rival.schedules(workflow)
    if as_json:
        print_json([dataclasses.asdict(one) for one in found])
    elif not found:
        click.echo("no schedules")
    else:
        columns = ("schedule", "workflow", "when", "catch up", "own", "next", "last", "input", "error")
        console().print(table(columns, map(_row, found)))
    return 0


def _row(one: ScheduleRecord) -> tuple[Any, ...]:
    rule = (one.name, one.workflow, one.rule, one.catch_up, "workflow" if one.own else "")
    return (*rule, time_text(one.next_at) or "paused", time_text(one.last_at), one_line(one.input), one.error or "")


@schedule.command()
@click.argument("name", shell_complete=complete_schedules)
@json_option
def pause(name: str, as_json: bool) -> int:
    """Start no runs of schedule NAME until it is resumed."""
    with open_rival() as rival:
        changed = rival.pause_schedule(name, by=operator_name(None))
    return _print_changed(name, "paused", changed, as_json)


@schedule.command()
@click.argument("name", shell_complete=complete_schedules)
@json_option
def resume(name: str, as_json: bool) -> int:
    """Continue a paused schedule with its next tick. `rival schedule backfill` starts what it has missed."""
    with open_rival() as rival:
        changed = rival.resume_schedule(name)
    return _print_changed(name, "resumed", changed, as_json)


def _print_changed(name: str, what: str, changed: bool, as_json: bool) -> int:
    if as_json:
        print_json({"name": name, what: changed})
    else:
        refused = f"{name} is paused already" if what == "paused" else f"{name} is not paused"
        click.echo(f"{what} {name}" if changed else f"rival: {refused}", err=not changed)
    return 0 if changed else 1


@schedule.command()
@click.argument("name", shell_complete=complete_schedules)
@json_option
def fire(name: str, as_json: bool) -> int:
    """Start a run of schedule NAME now, also while it is paused."""
    with open_rival() as rival:
        run_id = rival.fire_schedule(name, by=operator_name(None))
    if as_json:
        print_json({"name": name, "run_id": run_id})
    else:
        click.echo(f"started {run_id}")
    return 0


@schedule.command()
@click.argument("name", shell_complete=complete_schedules)
@click.option(
    "--since", metavar="TIME", callback=moment, required=True, help="From this time on: an ISO time, or 2h, 7d ago."
)
@click.option("--until", metavar="TIME", callback=moment, help="Only ticks before this time.")
@click.option(
    "--limit", type=click.IntRange(1, 1000), default=100, help="At most this many runs, the oldest ticks first."
)
@click.option("--dry-run", is_flag=True, help="Only print the ids of the runs.")
@json_option
def backfill(name: str, since: dt.datetime, until: dt.datetime | None, limit: int, dry_run: bool, as_json: bool) -> int:
    """Start the runs of ticks of schedule NAME that had none. Ticks that have a run are left alone."""
    how: dict[str, Any] = {"limit": limit, "dry_run": dry_run, "by": operator_name(None)}
    with open_rival() as rival, ProgressLine(as_json) as line:
        line.show(f"backfill {name}: at most {limit:,} runs, in one transaction …")
        of_ticks = rival.backfill_schedule(name, since, until, **{**how, "dry_run": True})
        found = of_ticks if dry_run else rival.backfill_schedule(name, since, until, **how)
        refused = _without_run(rival, name, [one for one in of_ticks if one not in set(found)])
    if as_json:
        print_json({"name": name, "dry_run": dry_run, "run_ids": found, "refused": refused})
        return 0
    for run_id in found:
        click.echo(f"{'would start' if dry_run else 'started'} {run_id}")
    for run_id in refused:
        click.echo(f"refused {run_id}: another run has the place of its singleton key")
    if not (found or refused):
        click.echo("no tick without a run")
    return 0


def _without_run(rival: Rival, name: str, run_ids: list[str]) -> list[str]:
    """Those that a singleton key has kept from being started."""
    its_options = next((one.options for one in rival.schedules() if one.name == name), None) or {}
    return [one for one in run_ids if not _exists(rival, one)] if its_options.get("singleton") else []


def _exists(rival: Rival, run_id: str) -> bool:
    try:
        return rival.state(run_id).run_id == run_id
    except RunNotFound:
        return False


@schedule.command()
@click.argument("name", shell_complete=complete_schedules)
@json_option
def rm(name: str, as_json: bool) -> int:
    """Remove a schedule. Runs that it started continue.

    The next worker that starts adds a workflow's own schedule again.
    """
    with open_rival() as rival:
        own = any(one.name == name and one.own for one in rival.schedules())
        removed = rival.unschedule(name)
    if as_json:
        print_json({"name": name, "removed": removed} | ({"own": own} if removed else {}))
    else:
        said = f"removed {name}{_COMES_BACK if own else ''}" if removed else f"rival: unknown schedule {name}"
        click.echo(said, err=not removed)
    return 0 if removed else 1
