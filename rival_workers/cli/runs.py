"""`rival run`, `wait`, `ls` and `workflows`: start, wait for and list runs; list the registered workflows."""

from __future__ import annotations

import dataclasses
from typing import Any

import click

from rival_client.broker.wait_schedule import DEFAULT_TIMEOUT
from rival_client.model import statuses
from rival_client.model.records import Run, RunResult
from rival_client.model.starts.run_options import RunOptions
from rival_client.model.statuses import RUN_ACTIVE
from rival_client.model.workflow_info import WorkflowInfo
from rival_client.sql.reads.run_filter import RunFilter
from rival_workers.cli.completion import complete_runs, complete_workflows
from rival_workers.cli.connection import open_rival
from rival_workers.cli.display import run_text as showing
from rival_workers.cli.display.formats import (
    error_text,
    labels_text,
    one_line,
    seconds_text,
    status_text,
    time_text,
    took,
)
from rival_workers.cli.display.output import console, json_option, print_json, table
from rival_workers.cli.display.record_json import run_as_json, workflow_as_json
from rival_workers.cli.options.filter_options import as_arguments, filter_options
from rival_workers.cli.options.inputs import json_input
from rival_workers.cli.options.start_options import start_options

timeout_option = click.option(
    "--timeout",
    type=click.FloatRange(min=0),
    default=DEFAULT_TIMEOUT,
    metavar="SECONDS",
    help="How long to wait for the end of the run.",
)


@click.command()
@click.argument("workflow", metavar="NAME", shell_complete=complete_workflows)
@click.argument("value", metavar="[JSON]", callback=json_input, required=False)
@click.option("--run-id", help="The run's id; starting the same id and input twice starts one run.")
@click.option("--wait", "waits", is_flag=True, help="Wait for the result. Exit code 1 unless the run completes.")
@timeout_option
@start_options
@json_option
def run(
    workflow: str, value: Any, run_id: str | None, waits: bool, timeout: float, options: RunOptions, as_json: bool
) -> int:
    """Start a run of workflow NAME with the input JSON (or @FILE, or - for standard input)."""
    with open_rival() as rival:
        started = rival.run(workflow, value, run_id, **options)
        if waits:
            return _print_result(rival.wait(workflow, started.run_id, timeout), as_json)
    if as_json:
        said = {"run_id": started.run_id, "workflow": workflow, "status": started.status}
        print_json(said | ({} if started.instead_of is None else {"instead_of": started.instead_of}))
    else:
        click.echo(_STARTED[started.status].format(run=started.run_id, other=started.instead_of))
    return 0


_STARTED = {
    "started": "started {run}",
    "running": "{run} was started before",
    "gathered": "added to {run}, which has not begun",
    "queued": "queued {run}: it waits for another run with its singleton key",
    "skipped": "skipped: {other} has the singleton place",
}


@click.command()
@click.argument("run_id", metavar="RUN", shell_complete=complete_runs)
@timeout_option
@json_option
def wait(run_id: str, timeout: float, as_json: bool) -> int:
    """Wait until RUN has ended. Exit code 1 unless it completed."""
    with open_rival() as rival:
        return _print_result(rival.wait(run_id=run_id, timeout=timeout), as_json)


def _print_result(result: RunResult, as_json: bool) -> int:
    if as_json:
        print_json(dataclasses.asdict(result))
    else:
        out = console()
        out.print(status_text(result.status), result.run_id, markup=False)
        if result.status == statuses.COMPLETED:
            print_json(result.result)
        elif result.error is not None:
            out.print(f"at step {result.failed_step}: {error_text(result.error, 2000)}", markup=False)
    return 0 if result.status == statuses.COMPLETED else 1


@click.command("ls")
@filter_options
@click.option("--active", is_flag=True, help="Only runs that have not ended.")
@click.option("--limit", type=click.IntRange(min=1), default=50, help="At most this many runs.")
@click.option("--after", metavar="CURSOR", help="Start after this cursor (printed at the end of the previous page).")
@json_option
def ls(chosen: RunFilter, active: bool, limit: int, after: str | None, as_json: bool) -> None:
    """List runs, newest first."""
    if chosen.status and active:
        raise click.UsageError("--status and --active exclude each other")
    if active:
        chosen = dataclasses.replace(chosen, status=RUN_ACTIVE)
    with open_rival() as rival:
        found = rival.runs(**vars(chosen), after=after, limit=limit)
    if as_json:
        print_json({"runs": [run_as_json(one) for one in found], "next": found.next})
    elif found:
        console().print(table(("run", "workflow", "status", "created", "took", ""), map(_row, found)))
    else:
        click.echo("no runs")
    if found.next is not None and not as_json:
        click.echo(f"more: rival ls {as_arguments(chosen)} --limit {limit} --after {found.next}".replace("  ", " "))


def _row(run: Run) -> tuple[Any, ...]:
    remark = error_text(run.error, 80) or ("paused" if run.is_paused else "")
    remark = remark or (f"parked: {run.parked}" if run.parked else labels_text(run.labels))
    facts = (run.run_id, run.workflow, status_text(run.status), time_text(run.created_at))
    return (*facts, seconds_text(took(run)), remark)


@click.command()
@json_option
def workflows(as_json: bool) -> None:
    """List the registered workflows."""
    with open_rival() as rival:
        found = rival.workflows()
    if as_json:
        print_json({"workflows": [workflow_as_json(info) for info in found]})
    elif found:
        console().print(table(("workflow", "version", "steps", "", "description"), map(_workflow_row, found)))
    else:
        click.echo("no workflows: a worker registers its workflows when it starts")


def _workflow_row(info: WorkflowInfo) -> tuple[Any, ...]:
    names = one_line(" → ".join(showing.step_names(info)))
    return info.name, info.version, info.step_count, names, one_line(info.description or "")
