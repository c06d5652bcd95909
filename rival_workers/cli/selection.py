"""Options that select runs, and verbs on all selected runs: preview, confirmation, outcome of each run."""

from __future__ import annotations

import dataclasses
import datetime as dt
import functools
import getpass
import itertools
import json
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import click

from rival_client.api.bulk import LIMIT, Bulk, BulkOutcome, Verb
from rival_client.api.client import Rival
from rival_client.model.records import Reopened
from rival_client.model.statuses import RUN_STATUSES
from rival_client.sql.run_filter import RunFilter
from rival_workers.cli.completion import complete_runs, complete_workflows
from rival_workers.cli.inputs import fields, labels, since
from rival_workers.cli.output import (
    ProgressLine,
    console,
    error_text,
    json_option,
    one_line,
    print_json,
    status_text,
    table,
    time_text,
)

# -- filters ----------------------------------------------------------------------------------------------

_TIME = "90s, 15m, 2h, 7d or an ISO time"
_FIELDS = "customer=7, customer.id=7 or a JSON object; may be given several times"
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
        help="Only runs with this label; may be given several times.",
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

    return _with_options(_FILTER_OPTIONS, with_filter)


def _with_options(options: tuple[Any, ...], command: Callable[..., Any]) -> Callable[..., Any]:
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


# -- verbs on one run or on the selected runs -------------------------------------------------------------

#: Verb -> its past participle, for the summary.
DONE = {
    "retry": "retried",
    "rewind": "rewound",
    "pause": "paused",
    "resume": "resumed",
    "cancel": "cancelled",
    "skip": "skipped the step of",
    "set_result": "set the result of",
}
by_option = click.option("--by", default=None, help="The operator's name, for the history. [default: the user's name]")
_VERB_OPTIONS = (
    click.option("--limit", type=click.IntRange(min=1), default=LIMIT, help="At most this many runs, newest first."),
    click.option("--yes", is_flag=True, help="Change all runs that match the filter, without asking."),
    click.option("--dry-run", is_flag=True, help="Only show what would change."),
    by_option,
    json_option,
)


@dataclass(frozen=True)
class VerbOptions:
    """The options of every verb: a filter instead of a run id, and how to apply the verb."""

    chosen: RunFilter
    limit: int
    yes: bool
    dry_run: bool
    by: str
    as_json: bool

    def require_run_or_filter(self, run_id: str | None) -> None:
        if (run_id is None) == (self.chosen == RunFilter()):
            raise click.UsageError("give either RUN or a filter, like --workflow, --status, --since or --error")


def verb_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the options of every verb. The command gets them as `options`."""

    @functools.wraps(command)
    def with_options(
        chosen: RunFilter, limit: int, yes: bool, dry_run: bool, by: str | None, as_json: bool, **given: Any
    ) -> Any:
        return command(options=VerbOptions(chosen, limit, yes, dry_run, operator_name(by), as_json), **given)

    return filter_options(_with_options(_VERB_OPTIONS, with_options))


def operator_name(given: str | None) -> str:
    if given is not None:
        return given
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return "rival"


def in_bulk(rival: Rival, verb: Verb, options: VerbOptions, **arguments: Any) -> int:
    """Shows a preview, asks for confirmation, and applies the verb."""
    arguments = {"limit": options.limit, "by": options.by, **arguments}
    if options.yes and not options.dry_run:
        return _apply(rival, verb, options.chosen, options, **arguments)
    preview = rival.bulk(verb, options.chosen, dry_run=True, **arguments)
    print_outcomes(preview, options)
    if not preview.done or options.dry_run or options.as_json:
        return 0
    if not is_terminal():
        click.echo("Nothing was changed: add --yes to do it.")
        return 0
    if not click.confirm(f"{verb.replace('_', ' ')} {len(preview.done)} runs?"):
        click.echo("Nothing was changed.")
        return 0
    return _apply(rival, verb, preview.done, options, **arguments)


def is_terminal() -> bool:
    return sys.stdin.isatty() and sys.stdout.isatty()


def _apply(rival: Rival, verb: Verb, runs: RunFilter | Sequence[str], options: VerbOptions, **arguments: Any) -> int:
    of = "" if isinstance(runs, RunFilter) else f" of {len(runs):,}"
    seen = itertools.count(1)
    with ProgressLine(options.as_json) as line:

        def show(outcome: BulkOutcome) -> None:
            line.show(f"{verb.replace('_', ' ')} {next(seen):,}{of}: {outcome.run.run_id}")

        done = rival.bulk(verb, runs, on_outcome=show, **arguments)
    return print_outcomes(done, options)


def print_outcomes(bulk: Bulk, options: VerbOptions) -> int:
    """Returns exit code 1 if a run was refused; a preview refuses nothing."""
    if options.as_json:
        print_json(_as_json(bulk))
    else:
        _print_text(bulk, options.limit)
    return 1 if bulk.refused and not bulk.dry_run else 0


def _as_json(bulk: Bulk) -> dict[str, Any]:
    reopened = {one.run.run_id: dataclasses.asdict(one.reopened) for one in bulk.outcomes if one.reopened is not None}
    return {
        "verb": bulk.verb,
        "dry_run": bulk.dry_run,
        "runs": bulk.done,
        "refused": bulk.refused,
        "more": bulk.more,
        "reopened": reopened,
    }


def _print_text(bulk: Bulk, limit: int) -> None:
    if bulk.dry_run and bulk.outcomes:
        console().print(table(("run", "workflow", "status", "created", "", "would"), map(_row, bulk.outcomes)))
    elif not bulk.dry_run:
        for why in bulk.refused.values():
            click.echo(why, err=True)
    what = f"would {bulk.verb.replace('_', ' ')}" if bulk.dry_run else DONE[bulk.verb]
    refused = f", {'refuse' if bulk.dry_run else 'refused'} {len(bulk.refused)}" if bulk.refused else ""
    more = f" (the newest {limit}; raise --limit for more)" if bulk.more else ""
    click.echo(f"{what} {len(bulk.done)} runs{refused}{more}")


def _row(outcome: BulkOutcome) -> tuple[Any, ...]:
    run = outcome.run
    would = f"refuse: {outcome.why}" if outcome.why is not None else reopened_text(outcome.reopened)
    facts = (run.run_id, run.workflow, status_text(run.status), time_text(run.created_at))
    return (*facts, error_text(run.error, 80), one_line(would, 300))


def reopened_text(reopened: Reopened | None) -> str:
    if reopened is None:
        return ""
    later = [path for path in reopened.runs_again if path not in reopened.opened]
    parts = [f"continue at {', '.join(reopened.opened) or 'its first step'}"]
    parts += [f"run again {', '.join(later)}"] if later else []
    parts += [f"start again {', '.join(reopened.children)}"] if reopened.children else []
    parts += [f"retry {', '.join(reopened.retried_children)}"] if reopened.retried_children else []
    return "; ".join(parts)
