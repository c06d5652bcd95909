"""Verbs on one run or on all selected runs: their options, the preview and the confirmation."""

from __future__ import annotations

import functools
import itertools
import sys
from collections.abc import Callable, Sequence
from typing import Any

import click

from rival_client.api.bulk import LIMIT, BulkOutcome, Verb
from rival_client.api.client import Rival
from rival_client.sql.reads.run_filter import RunFilter
from rival_workers.cli.display.bulk_outcomes import VerbOptions, phrase, print_outcomes
from rival_workers.cli.display.formats import counted
from rival_workers.cli.display.output import ProgressLine, json_option
from rival_workers.cli.options.filter_options import add_options, filter_options
from rival_workers.cli.options.operator_options import by_option, operator_name

_VERB_OPTIONS = (
    click.option("--limit", type=click.IntRange(min=1), default=LIMIT, help="At most this many runs, newest first."),
    click.option("--yes", is_flag=True, help="Change all runs that match the filter, without asking."),
    click.option("--dry-run", is_flag=True, help="Only show what would change."),
    by_option,
    json_option,
)


def verb_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the options of every verb. The command gets them as `options`."""

    @functools.wraps(command)
    def with_options(
        chosen: RunFilter, limit: int, yes: bool, dry_run: bool, by: str | None, as_json: bool, **given: Any
    ) -> Any:
        return command(options=VerbOptions(chosen, limit, yes, dry_run, operator_name(by), as_json), **given)

    return filter_options(add_options(_VERB_OPTIONS, with_options))


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
    if not click.confirm(f"{phrase(verb)} {counted(len(preview.done), 'run')}?"):
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
            line.show(f"{verb.replace('_', ' ')} {next(seen):,}{of}: {outcome.run_id}")

        done = rival.bulk(verb, runs, on_outcome=show, **arguments)
    return print_outcomes(done, options)
