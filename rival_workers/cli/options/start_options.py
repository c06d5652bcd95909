"""Options of commands that start runs: `rival run` and `rival schedule add`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import click

from rival_client.model.starts.priorities import LEVELS
from rival_client.model.starts.run_options import ON_CONFLICT
from rival_workers.cli.options.field_options import labels
from rival_workers.cli.options.inputs import policies
from rival_workers.cli.options.time_options import deadline, moment

_NAMES = (
    "policies",
    "policies_mode",
    "labels",
    "delay",
    "scheduled_at",
    "deadline",
    "priority",
    "singleton",
    "on_conflict",
    "debounce",
    "max_wait",
    "collect",
    "batch",
    "within",
    "key",
)
_seconds = functools.partial(click.option, type=click.FloatRange(min=0), metavar="SECONDS")
_OPTIONS = (
    click.option(
        "--label",
        "labels",
        metavar="NAME=VALUE",
        multiple=True,
        callback=labels,
        help="A label of the run; repeatable.",
    ),
    click.option("--delay", type=click.FloatRange(min=0), metavar="SECONDS", help="Begin after this many seconds."),
    click.option("--scheduled-at", metavar="TIME", callback=moment, help="Begin at this ISO time (local if no zone)."),
    click.option(
        "--policy",
        "policies",
        metavar="RULE",
        multiple=True,
        callback=policies,
        help='A rule for its steps, as JSON: \'["charge", {"timeout": 60}]\'; repeatable.',
    ),
    click.option(
        "--policies-mode",
        type=click.Choice(["merge", "replace"]),
        help="replace: only these rules, not the options of the steps and of the workflow.",
    ),
    click.option(
        "--deadline", metavar="TIME", callback=deadline, help="Fail unless ended by then: seconds, or an ISO time."
    ),
    click.option("--priority", type=click.Choice(list(LEVELS)), help="Which runs workers start first."),
    click.option("--singleton", metavar="KEY", help="At most one run of the workflow with this key runs."),
    click.option("--on-conflict", type=click.Choice(ON_CONFLICT), help="What to do if another run has the key."),
    _seconds("--debounce", help="Begin when no other start with --key has come for this time."),
    _seconds("--max-wait", help="The longest time for which --debounce postpones the run."),
    click.option("--collect", is_flag=True, default=None, help="With --debounce: the input is the list of all inputs."),
    click.option("--batch", type=int, metavar="N", help="Starts with --key become one run of at most N inputs."),
    _seconds("--within", help="How long a --batch waits for more inputs."),
    click.option("--key", metavar="KEY", help="Which starts --debounce and --batch bring together."),
)


def start_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the options. The command gets those that were given as `options`, as `Rival.run` takes them."""

    @functools.wraps(command)
    def with_options(**given: Any) -> Any:
        options = {name: given.pop(name) for name in _NAMES}
        return command(options={name: value for name, value in options.items() if value is not None}, **given)

    return functools.reduce(lambda made, option: option(made), reversed(_OPTIONS), with_options)
