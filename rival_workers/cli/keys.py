"""`rival key`: list, show and drop idempotency keys of steps."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import click

from rival_client.errors import RivalError
from rival_client.model.limits.idempotency_records import IdempotencyRecord
from rival_client.model.statuses import COMPLETED
from rival_workers.cli.connection import open_rival
from rival_workers.cli.display.formats import time_text
from rival_workers.cli.display.output import console, json_option, print_json, table
from rival_workers.cli.options.operator_options import by_option, operator_name


@click.group()
def key() -> None:
    """List, show and drop idempotency keys of steps."""


def _of(command: Callable[..., int]) -> Callable[..., int]:
    """Which key: that of a step, of a workflow, or of the fleet."""
    command = click.option("--step", help="The step whose key it is. [default: any step of the workflow]")(command)
    return click.option("--workflow", help="The workflow whose key it is. [default: the whole fleet]")(command)


@key.command("ls")
@click.option("--workflow", help="Only keys of this workflow.")
@click.option("--limit", type=int, default=50, show_default=True, help="At most this many keys.")
@json_option
def list_(workflow: str | None, limit: int, as_json: bool) -> int:
    """List keys that have not expired, newest first."""
    with open_rival() as rival:
        found = rival.idempotency_keys(workflow=workflow, limit=limit)
    if as_json:
        print_json([dataclasses.asdict(one) for one in found])
    elif not found:
        click.echo("no idempotency keys")
    else:
        console().print(table(("key", "of", "status", "run", "step", "waiting", "expires"), map(_row, found)))
    return 0


def _row(one: IdempotencyRecord) -> tuple[Any, ...]:
    whose = "the fleet" if one.workflow is None else one.workflow if one.step is None else f"{one.workflow}/{one.step}"
    return one.key, whose, one.status, one.run_id or "", one.path or "", one.waiting, time_text(one.expires_at)


@key.command()
@click.argument("key")
@_of
@json_option
def show(key: str, workflow: str | None, step: str | None, as_json: bool) -> int:
    """Show the step that has KEY, and its result."""
    with open_rival() as rival:
        found = rival.idempotency_key(key, workflow=workflow, step=step)
    if found is None:
        raise RivalError(f"Unknown idempotency key {key!r}. `rival key ls` lists them.")
    if as_json:
        print_json(dataclasses.asdict(found))
        return 0
    click.echo(f"{found.key}: {found.status}, by {found.run_id}/{found.path}, {found.waiting} waiting")
    if found.status == COMPLETED:
        click.echo(f"expires {time_text(found.expires_at)}")
        print_json(found.result)
    return 0


@key.command()
@click.argument("key")
@_of
@by_option
@json_option
def drop(key: str, workflow: str | None, step: str | None, by: str | None, as_json: bool) -> int:
    """Remove the result of KEY: the next step with it is called."""
    with open_rival() as rival:
        dropped = rival.drop_idempotency_key(key, workflow=workflow, step=step, by=operator_name(by))
    if as_json:
        print_json({"key": key, "dropped": dropped})
    else:
        click.echo(f"{key} is dropped" if dropped else f"the idempotency key {key} has no result")
    return 0 if dropped else 1
