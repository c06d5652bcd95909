"""The options that choose runs, the same for every command that takes them; and back again, as one would type them."""

from __future__ import annotations

import dataclasses
import datetime as dt
import functools
import json
import shlex
from collections.abc import Callable, Iterator
from typing import Any

import click

from rival_client.db.tables import RUN_STATUSES
from rival_client.sql.run_search import RunFilter
from rival_workers.cli.completion import complete_runs, complete_workflows
from rival_workers.cli.inputs import fields, since

_TIME = "90s, 15m, 2h, 7d or an ISO time"
_OPTIONS = (
    click.option(
        "--workflow", metavar="NAME", shell_complete=complete_workflows, help="Only runs of this workflow."
    ),
    click.option("--status", multiple=True, type=click.Choice(RUN_STATUSES), help="Only this status, or several."),
    click.option("--since", metavar="TIME", callback=since, help=f"Only runs created since then: {_TIME}."),
    click.option("--until", metavar="TIME", callback=since, help="Only runs created before then."),
    click.option("--ended-since", metavar="TIME", callback=since, help="Only runs that have ended since then."),
    click.option("--ended-until", metavar="TIME", callback=since, help="Only runs that have ended before then."),
    click.option(
        "--input", metavar="KEY=VALUE", multiple=True, callback=fields,
        help="Only runs with this in their input: customer=7, customer.id=7 or a JSON object; several are fine.",
    ),
    click.option("--result", metavar="KEY=VALUE", multiple=True, callback=fields, help="The same for the result."),
    click.option("--error", metavar="TEXT", help="Only runs whose error has this in its type or message."),
    click.option("--parent", metavar="RUN", shell_complete=complete_runs, help="Only child runs of this one."),
    click.option("--paused/--not-paused", default=None, help="Only runs that stand still, or only such as do not."),
)  # fmt: skip
_NAMES = [field.name for field in dataclasses.fields(RunFilter)]


def filter_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the options. What they say comes as `chosen`."""

    @functools.wraps(command)
    def with_filter(**given: Any) -> Any:
        said = {name: given.pop(name) for name in _NAMES}
        return command(chosen=RunFilter(**said | {"status": said["status"] or None}), **given)

    return functools.reduce(lambda made, option: option(made), reversed(_OPTIONS), with_filter)


def typed(chosen: RunFilter) -> str:
    """The options that choose the same, for a shell. Times are absolute: two hours ago is another time later."""
    return shlex.join(word for name in _NAMES for word in _words(name, getattr(chosen, name)))


def _words(name: str, value: Any) -> Iterator[str]:
    option = "--" + name.replace("_", "-")
    if value is None:
        return
    if name == "paused":
        yield "--paused" if value else "--not-paused"
    elif name == "status":
        yield from (word for status in ([value] if isinstance(value, str) else value) for word in (option, status))
    elif isinstance(value, dt.datetime):
        yield from (option, value.isoformat())
    else:
        yield from (option, value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
