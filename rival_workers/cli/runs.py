"""What a producer can do, from a terminal: start runs, wait for them, look at them."""

from __future__ import annotations

import dataclasses
from typing import Any

import click

from rival_client.broker.wait_schedule import DEFAULT_TIMEOUT
from rival_client.db.tables import RUN_ACTIVE
from rival_client.model.records import Run, RunResult, WorkflowInfo
from rival_client.sql.run_search import RunFilter
from rival_workers.cli import show as showing
from rival_workers.cli.completion import complete_runs, complete_workflows
from rival_workers.cli.connection import open_rival
from rival_workers.cli.filters import filter_options, typed
from rival_workers.cli.inputs import json_input
from rival_workers.cli.logs import read
from rival_workers.cli.output import (
    console,
    error_text,
    json_option,
    one_line,
    print_json,
    run_as_json,
    seconds_text,
    status_text,
    table,
    time_text,
    took,
    workflow_as_json,
)
from rival_workers.drawing import timelines

timeout_option = click.option(
    "--timeout", type=click.FloatRange(min=0), default=DEFAULT_TIMEOUT, metavar="SECONDS",
    help="How long to wait for the end of the run.",
)  # fmt: skip


@click.command()
@click.argument("workflow", metavar="NAME", shell_complete=complete_workflows)
@click.argument("value", metavar="[JSON]", callback=json_input, required=False)
@click.option("--run-id", help="The run's id; starting the same id and input twice starts one run.")
@click.option("--wait", "waits", is_flag=True, help="Wait for the result. Exit code 1 unless the run completes.")
@timeout_option
@json_option
def run(workflow: str, value: Any, run_id: str | None, waits: bool, timeout: float, as_json: bool) -> int:
    """Start a run of workflow NAME with the input JSON (or @FILE, or - for standard input)."""
    with open_rival() as rival:
        started = rival.run(workflow, value, run_id)
        if waits:
            return _tell_end(rival.wait(workflow, started.run_id, timeout), as_json)
    if as_json:
        print_json({"run_id": started.run_id, "workflow": workflow, "status": started.status})
    elif started.status == "started":
        click.echo(f"started {started.run_id}")
    else:
        click.echo(f"{started.run_id} was started before, with the same input")
    return 0


@click.command()
@click.argument("run_id", metavar="RUN", shell_complete=complete_runs)
@timeout_option
@json_option
def wait(run_id: str, timeout: float, as_json: bool) -> int:
    """Wait until RUN has ended. Exit code 1 unless it completed."""
    with open_rival() as rival:
        return _tell_end(rival.wait(run_id=run_id, timeout=timeout), as_json)


def _tell_end(result: RunResult, as_json: bool) -> int:
    if as_json:
        print_json(dataclasses.asdict(result))
    else:
        out = console()
        out.print(status_text(result.status), result.run_id, markup=False)
        if result.status == "completed":
            print_json(result.result)
        elif result.error is not None:
            out.print(f"at step {result.failed_step}: {error_text(result.error, 2000)}", markup=False)
    return 0 if result.status == "completed" else 1


@click.command("ls")
@filter_options
@click.option("--active", is_flag=True, help="Only runs that have not ended.")
@click.option("--limit", type=click.IntRange(min=1), default=50, help="So many on a page.")
@click.option("--after", metavar="CURSOR", help="The page behind this one: what the page before has said.")
@json_option
def ls(chosen: RunFilter, active: bool, limit: int, after: str | None, as_json: bool) -> None:
    """List runs, the newest first."""
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
        click.echo(f"more: rival ls {typed(chosen)} --limit {limit} --after {found.next}".replace("  ", " "))


def _row(run: Run) -> tuple[Any, ...]:
    remark = error_text(run.error, 80) or ("paused" if run.is_paused else "")
    remark = remark or (f"parked: {run.parked}" if run.parked else "")
    return (
        run.run_id, run.workflow, status_text(run.status), time_text(run.created_at), seconds_text(took(run)), remark,
    )  # fmt: skip


@click.command()
@click.argument("run_id", metavar="RUN", shell_complete=complete_runs)
@click.option("--all", "every", is_flag=True, help="Each iteration of what repeats and each traceback, also of many.")
@click.option("--history", is_flag=True, help="Also what happened to the run, in order.")
@click.option("--timeline", is_flag=True, help="Also when each step waited and ran, as bars.")
@click.option("--logs", is_flag=True, help="Also what its steps have logged.")
@json_option
def show(run_id: str, every: bool, history: bool, timeline: bool, logs: bool, as_json: bool) -> None:
    """Show RUN: its steps, attempts, result and the tracebacks of what failed."""
    with open_rival() as rival:
        state = rival.state(run_id, fold=None if every or as_json else showing.MANY)
        plan = showing.plan_of(rival, state)
        entries = rival.history(run_id) if history or timeline else []
        lines = list(read(rival, run_id)) if logs else None
    if as_json:
        asked = {
            "history": entries if history else None, "logs": lines,
            "timeline": timelines.tracks(entries) if timeline else None,
        }  # fmt: skip
        print_json(run_as_json(state) | {name: found for name, found in asked.items() if found is not None})
    else:
        told = entries if history else None
        showing.show_run(console(), state, plan, told, lines, entries if timeline else None, every=every)


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
        click.echo("no workflows yet: they register when a worker that has them starts")


def _workflow_row(info: WorkflowInfo) -> tuple[Any, ...]:
    names = one_line(" → ".join(showing.step_names(info)))
    return info.name, info.version, info.step_count, names, one_line(info.description or "")
