"""Verbs on many runs from a terminal: which runs, a preview, a question, and what became of each."""

from __future__ import annotations

import dataclasses
import functools
import getpass
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import click

from rival_client.api.bulk import LIMIT, Bulk, BulkOutcome, Verb
from rival_client.api.client import Rival
from rival_client.model.records import Reopened
from rival_client.sql.run_search import RunFilter
from rival_workers.cli.filters import filter_options
from rival_workers.cli.output import (
    console,
    error_text,
    json_option,
    one_line,
    print_json,
    status_text,
    table,
    time_text,
)

#: How each is told: would … / is done.
DONE = {
    "retry": "retried", "rewind": "rewound", "pause": "paused", "resume": "resumed", "cancel": "cancelled",
    "skip": "skipped the step of", "set_result": "set the result of",
}  # fmt: skip
_OPTIONS = (
    click.option("--limit", type=click.IntRange(min=1), default=LIMIT, help="The newest so many."),
    click.option("--yes", is_flag=True, help="Do it to all that the filter chooses, without asking."),
    click.option("--dry-run", is_flag=True, help="Only show what would be done."),
    click.option("--by", default=None, help="Who does it, for the history. [default: the user's name]"),
    json_option,
)


@dataclass(frozen=True)
class Asked:
    """What was typed beside the verb: which runs if not one, and how."""

    chosen: RunFilter
    limit: int
    yes: bool
    dry_run: bool
    by: str
    as_json: bool

    def refuse_both(self, run_id: str | None) -> None:
        if (run_id is None) == (self.chosen == RunFilter()):
            raise click.UsageError("give either RUN or a filter, like --workflow, --status, --since or --error")


def verb_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the options of every verb. What they say comes as `asked`."""

    @functools.wraps(command)
    def with_asked(
        chosen: RunFilter, limit: int, yes: bool, dry_run: bool, by: str | None, as_json: bool, **given: Any
    ) -> Any:
        return command(asked=Asked(chosen, limit, yes, dry_run, _who(by), as_json), **given)

    return filter_options(functools.reduce(lambda made, option: option(made), reversed(_OPTIONS), with_asked))


def _who(by: str | None) -> str:
    if by is not None:
        return by
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return "rival"


def in_bulk(rival: Rival, verb: Verb, asked: Asked, **what: Any) -> int:
    """Show what would be done, and do it once somebody has said yes."""
    how = {"limit": asked.limit, "by": asked.by, **what}
    if asked.yes and not asked.dry_run:
        return tell(rival.bulk(verb, asked.chosen, on_outcome=progress(), **how), asked)
    preview = rival.bulk(verb, asked.chosen, dry_run=True, **how)
    tell(preview, asked)
    if not preview.done or asked.dry_run or asked.as_json:
        return 0
    if not is_terminal():
        click.echo("Nothing was changed: add --yes to do it.")
        return 0
    if not click.confirm(f"{verb.replace('_', ' ')} {len(preview.done)} runs?"):
        click.echo("Nothing was changed.")
        return 0
    return tell(rival.bulk(verb, preview.done, on_outcome=progress(), **how), asked)


def is_terminal() -> bool:
    return sys.stdin.isatty() and sys.stdout.isatty()


def progress() -> Callable[[BulkOutcome], None] | None:
    """A line that counts, for whoever looks at it."""
    if not sys.stderr.isatty():
        return None
    seen: list[str] = []

    def told(outcome: BulkOutcome) -> None:
        seen.append(outcome.run.run_id)
        click.echo(f"\r\x1b[K{len(seen)}: {one_line(outcome.run.run_id, 60)}", nl=False, err=True)

    return told


def tell(bulk: Bulk, asked: Asked) -> int:
    """Exit code 1 when one of them was refused; a preview refuses nothing."""
    if asked.as_json:
        print_json(_as_json(bulk))
    else:
        _tell_people(bulk, asked.limit)
    return 1 if bulk.refused and not bulk.dry_run else 0


def _as_json(bulk: Bulk) -> dict[str, Any]:
    reopened = {one.run.run_id: dataclasses.asdict(one.reopened) for one in bulk.outcomes if one.reopened is not None}
    return {
        "verb": bulk.verb, "dry_run": bulk.dry_run, "runs": bulk.done, "refused": bulk.refused, "more": bulk.more,
        "reopened": reopened,
    }  # fmt: skip


def _tell_people(bulk: Bulk, limit: int) -> None:
    if sys.stderr.isatty() and not bulk.dry_run:
        click.echo("\r\x1b[K", nl=False, err=True)
    if bulk.dry_run and bulk.outcomes:
        console().print(table(("run", "workflow", "status", "created", "", "would"), map(_row, bulk.outcomes)))
    elif not bulk.dry_run:
        for why in bulk.refused.values():
            click.echo(why, err=True)
    what = f"would {bulk.verb.replace('_', ' ')}" if bulk.dry_run else DONE[bulk.verb]
    refused = f", {'refuse' if bulk.dry_run else 'refused'} {len(bulk.refused)}" if bulk.refused else ""
    more = f" (the newest {limit}; there are more: --limit takes more)" if bulk.more else ""
    click.echo(f"{what} {len(bulk.done)} runs{refused}{more}")


def _row(outcome: BulkOutcome) -> tuple[Any, ...]:
    run = outcome.run
    would = f"refuse: {outcome.why}" if outcome.why is not None else reopened_text(outcome.reopened)
    return (
        run.run_id, run.workflow, status_text(run.status), time_text(run.created_at), error_text(run.error, 80),
        one_line(would, 300),
    )  # fmt: skip


def reopened_text(reopened: Reopened | None) -> str:
    if reopened is None:
        return ""
    later = [path for path in reopened.runs_again if path not in reopened.opened]
    parts = [f"go on at {', '.join(reopened.opened) or 'its first step'}"]
    parts += [f"undo {', '.join(later)}"] if later else []
    parts += [f"start anew {', '.join(reopened.children)}"] if reopened.children else []
    parts += [f"retry {', '.join(reopened.retried_children)}"] if reopened.retried_children else []
    return "; ".join(parts)
