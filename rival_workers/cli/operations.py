"""An operator's verbs from a terminal: on one run by its id, or on many by a filter."""

from __future__ import annotations

import dataclasses
from typing import Any

import click

from rival_client.api.bulk import Verb
from rival_client.api.client import Rival
from rival_client.model.records import Reopened
from rival_workers.cli.bulk import DONE, Asked, in_bulk, tell, verb_options
from rival_workers.cli.completion import complete_runs
from rival_workers.cli.connection import open_rival
from rival_workers.cli.inputs import json_given
from rival_workers.cli.output import print_json

run_argument = click.argument("run_id", metavar="[RUN]", required=False, shell_complete=complete_runs)
step_argument = click.argument("step", metavar="[STEP]", required=False)
step_option = click.option("--step", "step_name", metavar="STEP", help="The step, for runs chosen by a filter.")
reason_option = click.option("--reason", required=True, help="Why, for the history.")


@click.command()
@run_argument
@verb_options
def retry(run_id: str | None, asked: Asked) -> int:
    """Let a failed or cancelled RUN go on where it has stopped; or all failed runs that a filter chooses."""
    asked.refuse_both(run_id)
    with open_rival() as rival:
        if run_id is None:
            return in_bulk(rival, "retry", asked)
        return _tell_reopened(rival.retry(run_id, dry_run=asked.dry_run, by=asked.by), asked)


@click.command()
@run_argument
@step_argument
@step_option
@verb_options
def rewind(run_id: str | None, step: str | None, step_name: str | None, asked: Asked) -> int:
    """Let RUN go on from STEP again, whatever became of it; what came after it is undone. Or all failed runs that a
    filter chooses, with --step.
    """
    asked.refuse_both(run_id)
    step = _one_step(step, step_name)
    with open_rival() as rival:
        if run_id is None:
            return in_bulk(rival, "rewind", asked, step=step)
        return _tell_reopened(rival.rewind(run_id, step, dry_run=asked.dry_run, by=asked.by), asked)


def _one_step(argument: str | None, option: str | None) -> str:
    if (argument is None) == (option is None):
        raise click.UsageError("give the step: STEP after RUN, or --step with a filter")
    return argument or option or ""


def _tell_reopened(reopened: Reopened, asked: Asked) -> int:
    if asked.as_json:
        print_json(dataclasses.asdict(reopened) | {"dry_run": asked.dry_run})
        return 0
    begins = ", ".join(reopened.opened) or "its first step"
    later = [path for path in reopened.runs_again if path not in reopened.opened]
    click.echo(f"{reopened.run_id} {'would go' if asked.dry_run else 'goes'} on at {begins}")
    if later:
        click.echo(f"undone: {', '.join(later)}")
    if reopened.children:
        click.echo(f"child runs, cancelled if open and started anew: {', '.join(reopened.children)}")
    if reopened.retried_children:
        click.echo(f"child runs, retried too: {', '.join(reopened.retried_children)}")
    return 0


@click.command()
@run_argument
@verb_options
def pause(run_id: str | None, asked: Asked) -> int:
    """Let RUN start nothing new; what is running ends. Or all open runs that a filter chooses."""
    return _switch("pause", run_id, asked)


@click.command()
@run_argument
@verb_options
def resume(run_id: str | None, asked: Asked) -> int:
    """Let a paused RUN go on; or all paused runs that a filter chooses."""
    return _switch("resume", run_id, asked)


@click.command()
@run_argument
@verb_options
def cancel(run_id: str | None, asked: Asked) -> int:
    """Cancel RUN, all its open steps and its child runs; or all open runs that a filter chooses."""
    return _switch("cancel", run_id, asked)


def _switch(verb: Verb, run_id: str | None, asked: Asked) -> int:
    asked.refuse_both(run_id)
    with open_rival() as rival:
        if run_id is None:
            return in_bulk(rival, verb, asked)
        if asked.dry_run:
            return tell(rival.bulk(verb, [run_id], dry_run=True), asked)
        changed = getattr(rival, verb)(run_id, by=asked.by)
        run = rival.state(run_id, fold=0)
    now = "paused" if run.is_paused else run.status
    if asked.as_json:
        paused = {} if verb == "cancel" else {"is_paused": run.is_paused}
        print_json({"run_id": run_id, DONE[verb]: changed, "status": run.status} | paused)
    elif changed:
        click.echo(f"{DONE[verb]} {run_id}")
    else:
        click.echo(f"{run_id} had ended already: {now}" if run.is_terminal else f"{run_id} is {now}: nothing to do")
    return 0


@click.command()
@run_argument
@step_argument
@step_option
@reason_option
@verb_options
def skip(run_id: str | None, step: str | None, step_name: str | None, reason: str, asked: Asked) -> int:
    """Let an open STEP of RUN, or the one that it has stopped at, end as skipped. Or of all failed runs that a filter
    chooses, with --step.
    """
    with open_rival() as rival:
        return _settle(rival, "skip", run_id, asked, step=_one_step(step, step_name), reason=reason)


@click.command("set-result")
@run_argument
@step_argument
@click.argument("value", metavar="[JSON]", callback=json_given, required=False)
@step_option
@click.option("--value", "named_value", metavar="JSON", callback=json_given, help="The result, with --step.")
@reason_option
@verb_options
def set_result(
    run_id: str | None, step: str | None, value: tuple[Any] | None, step_name: str | None,
    named_value: tuple[Any] | None, reason: str, asked: Asked,
) -> int:  # fmt: skip
    """Let an open STEP of RUN, or the one that it has stopped at, end with the result JSON (or @FILE, or -). Or of all
    failed runs that a filter chooses, with --step and --value.
    """
    given = value or named_value
    if given is None or (value and named_value):
        raise click.UsageError("give the result: JSON after RUN and STEP, or --value with a filter")
    what = {"step": _one_step(step, step_name), "value": given[0], "reason": reason}
    with open_rival() as rival:
        return _settle(rival, "set_result", run_id, asked, **what)


def _settle(rival: Rival, verb: Verb, run_id: str | None, asked: Asked, **what: Any) -> int:
    asked.refuse_both(run_id)
    if run_id is None:
        return in_bulk(rival, verb, asked, **what)
    if asked.dry_run:
        return tell(rival.bulk(verb, [run_id], dry_run=True, by=asked.by, **what), asked)
    step, status = what["step"], "skipped" if verb == "skip" else "completed"
    if verb == "skip":
        rival.skip(run_id, step, reason=what["reason"], by=asked.by)
    else:
        rival.set_result(run_id, step, what["value"], reason=what["reason"], by=asked.by)
    if asked.as_json:
        print_json({"run_id": run_id, "step": step, "status": status})
    else:
        click.echo(f"{step} of {run_id} is {status}; the run goes on")
    return 0
