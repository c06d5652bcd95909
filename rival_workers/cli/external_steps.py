"""`rival complete` and `rival fail`: end an external step."""

from __future__ import annotations

from typing import Any

import click

from rival_client.model.completion_token import CompletionToken
from rival_workers.cli.connection import open_rival
from rival_workers.cli.display.output import json_option, print_json
from rival_workers.cli.options.inputs import json_input


@click.command()
@click.argument("token")
@click.argument("value", metavar="[JSON]", callback=json_input, required=False)
@json_option
def complete(token: str, value: Any, as_json: bool) -> int:
    """Complete the external step of TOKEN with the result JSON (or @FILE, or - for standard input)."""
    with open_rival() as rival:
        return _print_outcome(token, "completed", rival.complete_step(token, value, by="cli"), as_json)


@click.command()
@click.argument("token")
@click.argument("message")
@click.option("--retry", is_flag=True, help="Retry the step, if it has attempts left.")
@json_option
def fail(token: str, message: str, retry: bool, as_json: bool) -> int:
    """Fail the external step of TOKEN."""
    with open_rival() as rival:
        return _print_outcome(token, "failed", rival.fail_step(token, message, retry=retry, by="cli"), as_json)


def _print_outcome(token: str, what: str, accepted: bool, as_json: bool) -> int:
    step = CompletionToken.parse(token)
    if as_json:
        print_json({"run_id": step.run_id, "step": step.path, "accepted": accepted})
    elif accepted:
        click.echo(f"{what} step {step.path} of run {step.run_id}")
    else:
        click.echo(f"step {step.path} of run {step.run_id} does not wait for this token any more")
    return 0 if accepted else 1
