"""Options that select runs, and the same selection as arguments for a shell."""

from __future__ import annotations

import dataclasses
import datetime as dt
import functools
import json
import shlex
from collections.abc import Callable, Iterator
from typing import Any

import click

from rival_client.model.statuses import RUN_STATUSES
from rival_client.sql.reads.run_filter import RunFilter
from rival_workers.cli.completion import complete_runs, complete_workflows
from rival_workers.cli.options.field_options import fields, labels
from rival_workers.cli.options.time_options import since

_TIME = "90s, 15m, 2h, 7d or an ISO time"
_FIELDS = "customer=7, customer.id=7 or a JSON object; repeatable"
_field_option = functools.partial(click.option, metavar="KEY=VALUE", multiple=True, callback=fields)
_time_option = functools.partial(click.option, metavar="TIME", callback=since)
_FILTER_OPTIONS = (
    click.option("--workflow", metavar="NAME", shell_complete=complete_workflows, help="Only runs of this workflow."),
    click.option("--status", multiple=True, type=click.Choice(RUN_STATUSES), help="Only this status, or several."),
    _time_option("--since", help=f"Only runs created since then: {_TIME}."),
    _time_option("--until", help="Only runs created before then."),
    _time_option("--ended-since", help="Only runs that ended since then."),
    _time_option("--ended-until", help="Only runs that ended before then."),
    _field_option("--input", help=f"Only runs with this in their input: {_FIELDS}."),
    _field_option("--result", help="The same for the result."),
    click.option("--error", metavar="TEXT", help="Only runs whose error has this in its type or message."),
    click.option("--parent", metavar="RUN", shell_complete=complete_runs, help="Only child runs of this run."),
    click.option(
        "--label",
        "labels",
        metavar="NAME=VALUE",
        multiple=True,
        callback=labels,
        help="Only runs with this label; repeatable.",
    ),
    click.option("--paused", is_flag=True, help="Only paused runs."),
    click.option("--not-paused", is_flag=True, help="Only runs that are not paused."),
)
_FILTER_NAMES = [field.name for field in dataclasses.fields(RunFilter)]


def filter_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the filter options. The command gets them as `chosen`."""

    @functools.wraps(command)
    def with_filter(**given: Any) -> Any:
        not_paused = given.pop("not_paused")
        values = {name: given.pop(name) for name in _FILTER_NAMES}
        if values["paused"] and not_paused:
            raise click.UsageError("Give --paused or --not-paused: no run is both.")
        paused = values["paused"] if values["paused"] or not_paused else None
        return command(chosen=RunFilter(**values | {"status": values["status"] or None, "paused": paused}), **given)

    return add_options(_FILTER_OPTIONS, with_filter)


def add_options(options: tuple[Any, ...], command: Callable[..., Any]) -> Callable[..., Any]:
    return functools.reduce(lambda made, option: option(made), reversed(options), command)


def as_arguments(chosen: RunFilter) -> str:
    """The options that select the same runs, for a shell. Times are absolute, since `2h` changes its meaning."""
    return shlex.join(word for name in _FILTER_NAMES for word in _arguments(name, getattr(chosen, name)))


def _arguments(name: str, value: Any) -> Iterator[str]:
    option = "--" + name.replace("_", "-")
    if value is None:
        return
    if name == "paused":
        yield "--paused" if value else "--not-paused"
    elif name == "labels":
        yield from (word for label, text in value.items() for word in ("--label", f"{label}={text}"))
    elif name == "status":
        yield from (word for status in ([value] if isinstance(value, str) else value) for word in (option, status))
    elif isinstance(value, dt.datetime):
        yield from (option, value.isoformat())
    else:
        yield from (option, value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
