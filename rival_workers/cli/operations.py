"""`rival cancel`, `retry`, `rewind`, `pause` and `resume`: on one run, or on all that match a filter."""

from __future__ import annotations

import dataclasses

import click

from rival_client.api.bulk import Verb
from rival_client.api.client import Rival
from rival_client.errors import RunNotFound
from rival_client.model.records import Reopened
from rival_workers.cli.connection import open_rival
from rival_workers.cli.display.bulk_outcomes import DONE, VerbOptions
from rival_workers.cli.display.output import print_json
from rival_workers.cli.options.verb_arguments import one_step, run_argument, step_argument, step_option
from rival_workers.cli.selection import in_bulk, verb_options


@click.command()
@run_argument
@verb_options
def retry(run_id: str | None, options: VerbOptions) -> int:
    """Continue a failed or cancelled RUN where it stopped, or all failed runs that match a filter."""
    options.require_run_or_filter(run_id)
    with open_rival() as rival:
        if run_id is None:
            return in_bulk(rival, "retry", options)
        return _print_reopened(rival.retry(run_id, dry_run=options.dry_run, by=options.by), options)


@click.command()
@run_argument
@step_argument
@step_option
@verb_options
def rewind(run_id: str | None, step: str | None, step_name: str | None, options: VerbOptions) -> int:
    """Run STEP of RUN and everything after it again. With --step and a filter: in all failed runs that match."""
    options.require_run_or_filter(run_id)
    step = one_step(step, step_name)
    with open_rival() as rival:
        if run_id is None:
            return in_bulk(rival, "rewind", options, step=step)
        return _print_reopened(rival.rewind(run_id, step, dry_run=options.dry_run, by=options.by), options)


def _print_reopened(reopened: Reopened, options: VerbOptions) -> int:
    if options.as_json:
        print_json(dataclasses.asdict(reopened) | {"dry_run": options.dry_run})
        return 0
    begins = ", ".join(reopened.opened) or "its first step"
    later = [path for path in reopened.runs_again if path not in reopened.opened]
    click.echo(f"{reopened.run_id} {'would continue' if options.dry_run else 'continues'} at {begins}")
    if later:
        click.echo(f"steps that run again: {', '.join(later)}")
    if reopened.children:
        click.echo(f"child runs, cancelled if open and started again: {', '.join(reopened.children)}")
    if reopened.retried_children:
        click.echo(f"child runs, also retried: {', '.join(reopened.retried_children)}")
    return 0


@click.command()
@run_argument
@verb_options
def pause(run_id: str | None, options: VerbOptions) -> int:
    """Start no further steps of RUN, or of all open runs that match a filter. Running attempts continue."""
    return _switch("pause", run_id, options)


@click.command()
@run_argument
@verb_options
def resume(run_id: str | None, options: VerbOptions) -> int:
    """Continue a paused RUN, or all paused runs that match a filter."""
    return _switch("resume", run_id, options)


@click.command()
@run_argument
@verb_options
def cancel(run_id: str | None, options: VerbOptions) -> int:
    """Cancel RUN with its open steps and its child runs, or all open runs that match a filter."""
    return _switch("cancel", run_id, options)


def _switch(verb: Verb, run_id: str | None, options: VerbOptions) -> int:
    options.require_run_or_filter(run_id)
    with open_rival() as rival:
        if run_id is None:
            return in_bulk(rival, verb, options)
        if options.dry_run:
            return _preview(rival, verb, run_id, options)
        changed = getattr(rival, verb)(run_id, by=options.by)
        run = rival.state(run_id, fold=0)
    now = "paused" if run.is_paused else run.status
    if options.as_json:
        paused = {} if verb == "cancel" else {"is_paused": run.is_paused}
        print_json({"run_id": run_id, DONE[verb]: changed, "status": run.status} | paused)
    elif changed:
        click.echo(f"{DONE[verb]} {run_id}")
    else:
        click.echo(f"{run_id} has already ended: {now}" if run.is_terminal else f"{run_id} is {now}: nothing to do")
    return 0


def _preview(rival: Rival, verb: Verb, run_id: str, options: VerbOptions) -> int:
    [outcome] = rival.bulk(verb, [run_id], dry_run=True).outcomes
    if outcome.run is None:
        raise RunNotFound(run_id)
    if options.as_json:
        print_json({"run_id": run_id, DONE[verb]: outcome.why is None, "status": outcome.run.status, "dry_run": True})
    else:
        click.echo(f"would {verb} {run_id}" if outcome.why is None else outcome.why)
    return 0
