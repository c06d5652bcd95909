"""`rival dlq`: list, show, redrive and drop dead letters."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import click

from rival_client.api.dead_letters import LIMIT, RATE, Redriven
from rival_client.errors import NotPossible
from rival_client.model.dead_letters import DeadLetter, DeadLetterFilter
from rival_workers.cli.completion import complete_runs, complete_workflows
from rival_workers.cli.connection import open_rival
from rival_workers.cli.display.formats import counted, one_line, printable, time_text
from rival_workers.cli.display.output import ProgressLine, console, json_option, print_json, table
from rival_workers.cli.display.tracebacks import full_option, readable
from rival_workers.cli.options.operator_options import by_option, operator_name
from rival_workers.cli.options.time_options import since

_FILTER = (
    click.option(
        "--workflow", metavar="NAME", shell_complete=complete_workflows, help="Only dead letters of this workflow."
    ),
    click.option("--step", metavar="STEP", help="Only dead letters of this step: its path, or its name."),
    click.option("--error", metavar="TEXT", help="Only dead letters whose error has this in its type or message."),
    click.option(
        "--since", metavar="TIME", callback=since, help="Only dead letters since then: 90s, 15m, 2h, 7d or an ISO time."
    ),
    click.option("--until", metavar="TIME", callback=since, help="Only dead letters before then."),
    click.option("--limit", type=click.IntRange(min=1), default=LIMIT, help="At most this many, newest first."),
    json_option,
)
_NAMES = ("workflow", "step", "error", "since", "until")


def _filtered(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the options of a filter. The command gets them as `chosen`."""

    @functools.wraps(command)
    def with_filter(**given: Any) -> Any:
        return command(chosen=DeadLetterFilter(**{name: given.pop(name) for name in _NAMES}), **given)

    return functools.reduce(lambda made, option: option(made), reversed(_FILTER), with_filter)


@click.group()
def dlq() -> None:
    """Handle dead letters: steps that failed with on_failure="dead_letter" and wait for an operator."""


@dlq.command("ls")
@_filtered
def list_(chosen: DeadLetterFilter, limit: int, as_json: bool) -> int:
    """List dead letters, newest first."""
    with open_rival() as rival:
        found = rival.dead_letters(chosen, limit=limit)
        more = len(found) == limit and bool(rival.dead_letters(chosen, limit=1, after=found[-1]))
    if as_json:
        print_json({"dead_letters": [dataclasses.asdict(one) for one in found], "more": more})
    elif not found:
        click.echo("no dead letters")
    else:
        console().print(table(("run", "step", "workflow", "failed", "error"), map(_row, found)))
    if more and not as_json:
        click.echo(f"more: these are the newest {limit}; raise --limit")
    return 0


def _row(one: DeadLetter) -> tuple[Any, ...]:
    return (one.run_id, one.path, one.workflow, time_text(one.at), one_line(f"{one.error_type}: {one.message}", 120))


@dlq.command()
@click.argument("run_id", metavar="RUN", shell_complete=complete_runs)
@full_option
@json_option
def show(run_id: str, full: bool, as_json: bool) -> int:
    """Show the dead letters of RUN with their errors and tracebacks."""
    with open_rival() as rival:
        found = rival.dead_letters(DeadLetterFilter(run_id=run_id), limit=1000)
        errors = {step.path: step.error for step in rival.state(run_id).steps}
    if as_json:
        print_json([{**dataclasses.asdict(one), "error": errors.get(one.path)} for one in found])
        return 0
    for one in found:
        _show(one, errors.get(one.path) or {}, full)
    if not found:
        click.echo(f"{run_id} has no dead letters")
    return 0


def _show(one: DeadLetter, error: dict[str, Any], full: bool) -> None:
    click.echo(f"{one.path} of {one.run_id} ({one.workflow}), failed at {time_text(one.at)}")
    text = str(error.get("traceback") or f"{one.error_type}: {one.message}").rstrip()
    click.echo(printable(text if full else readable(text)))


def _which(run_id: str | None, chosen: DeadLetterFilter) -> DeadLetterFilter | list[str]:
    if (run_id is None) == (chosen == DeadLetterFilter()):
        raise click.UsageError("give either RUN or a filter, like --workflow, --step or --error")
    return chosen if run_id is None else [run_id]


@dlq.command()
@click.argument("run_id", metavar="[RUN]", required=False, shell_complete=complete_runs)
@click.option("--rate", type=float, default=RATE, help="Start at most this many runs per second.")
@click.option("--dry-run", is_flag=True, help="Only show which runs would continue.")
@by_option
@_filtered
def redrive(
    run_id: str | None, rate: float, dry_run: bool, by: str | None, chosen: DeadLetterFilter, limit: int, as_json: bool
) -> int:
    """Continue RUN, or the runs of all dead letters that match a filter, at the steps that failed."""
    with open_rival() as rival:
        which = _which(run_id, chosen)
        seen = itertools.count(1)
        with ProgressLine(as_json) as line:
            show: Callable[[str], None] = lambda one: line.show(f"redrive {next(seen):,}: {one}")  # noqa: E731
            done = rival.redrive(which, limit=limit, rate=rate, dry_run=dry_run, by=operator_name(by), on_outcome=show)
    if as_json:
        print_json(dataclasses.asdict(done))
    else:
        _print_redriven(done, limit)
    return 1 if done.refused and not dry_run else 0


def _print_redriven(done: Redriven, limit: int) -> None:
    if done.dry_run and (done.done or done.refused):
        console().print(table(("run", "would"), _previewed(done)))
    elif not done.dry_run:
        for why in done.refused.values():
            click.echo(why, err=True)
    what = f"{'would redrive' if done.dry_run else 'redrove'} {counted(len(done.done), 'run')}"
    refused = f", {'refuse' if done.dry_run else 'refused'} {len(done.refused)}" if done.refused else ""
    click.echo(f"{what}{refused}{_more(done.more, limit)}")


def _previewed(done: Redriven) -> Iterator[tuple[str, str]]:
    yield from ((run_id, "continue") for run_id in done.done)
    yield from ((run_id, one_line(f"refuse: {why}", 300)) for run_id, why in done.refused.items())


def _more(more: bool, limit: int) -> str:
    return f" (the newest {counted(limit, 'dead letter')}; raise --limit for more)" if more else ""


@dlq.command()
@click.argument("run_id", metavar="[RUN]", required=False, shell_complete=complete_runs)
@by_option
@_filtered
def drop(run_id: str | None, by: str | None, chosen: DeadLetterFilter, limit: int, as_json: bool) -> int:
    """Remove the dead letters of RUN, or all that match a filter. The runs stay as they are."""
    with open_rival() as rival:
        count = rival.drop_dead_letters(_which(run_id, chosen), limit=limit, by=operator_name(by))
        if run_id is not None and not count:
            raise NotPossible("drop the dead letters of", rival.state(run_id, fold=0).run_id, "it has none")
        more = run_id is None and count >= limit and bool(rival.dead_letters(chosen, limit=1))
    if as_json:
        print_json({"dropped": count, "more": more})
    else:
        click.echo(f"dropped {counted(count, 'dead letter')}{_more(more, limit)}")
    return 0
