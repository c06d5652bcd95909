"""The outcome of a verb for each run, as text or JSON."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import click

from rival_client.api.bulk import Bulk, BulkOutcome
from rival_client.model.records import Reopened
from rival_client.sql.reads.run_filter import RunFilter
from rival_workers.cli.display.formats import counted, error_text, one_line, status_text, time_text
from rival_workers.cli.display.output import console, print_json, table

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


#: Verb -> its words before "the runs", where they are not the verb itself.
_PHRASES = {"skip": "skip the step of", "set_result": "set the result of"}


def phrase(verb: str) -> str:
    return _PHRASES.get(verb, verb)


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


def print_outcomes(bulk: Bulk, options: VerbOptions) -> int:
    """Returns exit code 1 if a run was refused; a preview refuses nothing."""
    if options.as_json:
        print_json(_as_json(bulk))
    else:
        _print_text(bulk, options.limit)
    return 1 if bulk.refused and not bulk.dry_run else 0


def _as_json(bulk: Bulk) -> dict[str, Any]:
    reopened = {one.run_id: dataclasses.asdict(one.reopened) for one in bulk.outcomes if one.reopened is not None}
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
    what = f"would {phrase(bulk.verb)}" if bulk.dry_run else DONE[bulk.verb]
    refused = f", {'refuse' if bulk.dry_run else 'refused'} {len(bulk.refused)}" if bulk.refused else ""
    more = f" (the newest {limit}; raise --limit for more)" if bulk.more else ""
    click.echo(f"{what} {counted(len(bulk.done), 'run')}{refused}{more}")


def _row(outcome: BulkOutcome) -> tuple[Any, ...]:
    run = outcome.run
    would = f"refuse: {outcome.why}" if outcome.why is not None else reopened_text(outcome.reopened)
    facts: tuple[Any, ...] = ("", "", "", "")
    if run is not None:
        facts = (run.workflow, status_text(run.status), time_text(run.created_at), error_text(run.error, 80))
    return (outcome.run_id, *facts, one_line(would, 300))


def reopened_text(reopened: Reopened | None) -> str:
    if reopened is None:
        return ""
    later = [path for path in reopened.runs_again if path not in reopened.opened]
    parts = [f"continue at {', '.join(reopened.opened) or 'its first step'}"]
    parts += [f"run again {', '.join(later)}"] if later else []
    parts += [f"start again {', '.join(reopened.children)}"] if reopened.children else []
    parts += [f"retry {', '.join(reopened.retried_children)}"] if reopened.retried_children else []
    return "; ".join(parts)
