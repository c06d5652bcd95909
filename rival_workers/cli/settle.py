"""`rival skip` and `rival set-result`: settle a step in place of its function."""

from __future__ import annotations

from typing import Any

import click

from rival_client.api.bulk import Verb
from rival_client.api.client import Rival
from rival_client.errors import RivalError
from rival_client.model import statuses
from rival_workers.cli.connection import open_rival
from rival_workers.cli.display.bulk_outcomes import VerbOptions
from rival_workers.cli.display.output import print_json
from rival_workers.cli.options.inputs import json_given
from rival_workers.cli.options.verb_arguments import one_step, run_argument, step_argument, step_option
from rival_workers.cli.selection import in_bulk, verb_options

#: Verb -> the status that it gives the step.
_STATUS = {"skip": statuses.SKIPPED, "set_result": statuses.COMPLETED}

reason_option = click.option("--reason", required=True, help="The reason, for the history.")


@click.command()
@run_argument
@step_argument
@step_option
@reason_option
@verb_options
def skip(run_id: str | None, step: str | None, step_name: str | None, reason: str, options: VerbOptions) -> int:
    """Skip STEP of RUN: an open step, or the one at which RUN failed. With --step and a filter: in all failed runs that
    match.
    """
    with open_rival() as rival:
        return _settle(rival, "skip", run_id, options, step=one_step(step, step_name), reason=reason)


@click.command("set-result")
@run_argument
@step_argument
@click.argument("value", metavar="[JSON]", callback=json_given, required=False)
@step_option
@click.option("--value", "named_value", metavar="JSON", callback=json_given, help="The result, with --step.")
@reason_option
@verb_options
def set_result(
    run_id: str | None,
    step: str | None,
    value: tuple[Any] | None,
    step_name: str | None,
    named_value: tuple[Any] | None,
    reason: str,
    options: VerbOptions,
) -> int:
    """Complete STEP of RUN with the result JSON (or @FILE, or -): an open step, or the one at which RUN failed. With
    --step, --value and a filter: in all failed runs that match.
    """
    given = value or named_value
    if given is None or (value and named_value):
        raise click.UsageError("give the result: JSON after RUN and STEP, or --value with a filter")
    arguments = {"step": one_step(step, step_name), "value": given[0], "reason": reason}
    with open_rival() as rival:
        return _settle(rival, "set_result", run_id, options, **arguments)


def _settle(rival: Rival, verb: Verb, run_id: str | None, options: VerbOptions, **arguments: Any) -> int:
    options.require_run_or_filter(run_id)
    if run_id is None:
        return in_bulk(rival, verb, options, **arguments)
    if options.dry_run:
        return _preview(rival, verb, run_id, options, **arguments)
    step, status = arguments["step"], _STATUS[verb]
    if verb == "skip":
        rival.skip(run_id, step, reason=arguments["reason"], by=options.by)
    else:
        rival.set_result(run_id, step, arguments["value"], reason=arguments["reason"], by=options.by)
    if options.as_json:
        print_json({"run_id": run_id, "step": step, "status": status})
    else:
        click.echo(f"{step} of {run_id} is {status}; the run continues")
    return 0


def _preview(rival: Rival, verb: Verb, run_id: str, options: VerbOptions, **arguments: Any) -> int:
    [outcome] = rival.bulk(verb, [run_id], dry_run=True, by=options.by, **arguments).outcomes
    if outcome.why is not None:
        raise RivalError(outcome.why)
    step, status = arguments["step"], _STATUS[verb]
    if options.as_json:
        print_json({"run_id": run_id, "step": step, "status": status, "dry_run": True})
    else:
        click.echo(f"{step} of {run_id} would be {status}; the run would continue")
    return 0
