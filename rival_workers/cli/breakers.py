"""`rival breaker`: list, open, close and reset circuit breakers."""

from __future__ import annotations

import dataclasses
from typing import Any

import click

from rival_client.model.policies.breakers import BreakerRecord
from rival_workers.cli.completion import complete_breakers
from rival_workers.cli.connection import open_rival
from rival_workers.cli.display.formats import time_text
from rival_workers.cli.display.output import console, json_option, print_json, table
from rival_workers.cli.options.operator_options import by_option, operator_name


@click.group()
def breaker() -> None:
    """List, open, close and reset circuit breakers, which the whole fleet shares."""


@breaker.command("ls")
@json_option
def list_(as_json: bool) -> int:
    """List circuit breakers that have counted a failure or were opened."""
    with open_rival() as rival:
        found = rival.breakers()
    if as_json:
        print_json([dataclasses.asdict(one) for one in found])
    elif not found:
        click.echo("no circuit breakers")
    else:
        console().print(table(("breaker", "state", "until", "failures", "probe", "changed", "by"), map(_row, found)))
    return 0


def _row(one: BreakerRecord) -> tuple[Any, ...]:
    until = time_text(one.until) if one.state != "open" or one.until else "closed by hand"
    probe = f"{one.probe_run} {one.probe_path}" if one.probe_run else ""
    return (one.name, one.state, until, one.failures, probe, time_text(one.changed_at), one.changed_by)


@breaker.command("open")
@click.argument("name", shell_complete=complete_breakers)
@click.option("--seconds", type=float, help="After this time one attempt may probe. [default: until it is closed]")
@click.option("--force", is_flag=True, help="Also if no registered workflow has it.")
@by_option
@json_option
def open_(name: str, seconds: float | None, force: bool, by: str | None, as_json: bool) -> int:
    """Stop the calls of all steps with the circuit breaker NAME."""
    with open_rival() as rival:
        rival.open_breaker(name, seconds=seconds, by=operator_name(by), force=force)
    _changed(name, "open", True, as_json)
    return 0


@breaker.command()
@click.argument("name", shell_complete=complete_breakers)
@by_option
@json_option
def close(name: str, by: str | None, as_json: bool) -> int:
    """Let the steps with the circuit breaker NAME be called again."""
    with open_rival() as rival:
        changed = rival.close_breaker(name, by=operator_name(by))
    return _changed(name, "closed", changed, as_json)


@breaker.command()
@click.argument("name", shell_complete=complete_breakers)
@json_option
def reset(name: str, as_json: bool) -> int:
    """Close the circuit breaker NAME and delete what it has counted."""
    with open_rival() as rival:
        changed = rival.reset_breaker(name)
    return _changed(name, "reset", changed, as_json, "a circuit breaker that has counted or was opened")


def _changed(name: str, what: str, changed: bool, as_json: bool, is_not: str = "an open circuit breaker") -> int:
    if as_json:
        print_json({"name": name, what: changed})
    else:
        click.echo(f"{name} is {what}" if changed else f"{name} is not {is_not}")
    return 0 if changed else 1
