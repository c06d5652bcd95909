"""An operator's verbs from a terminal: one run by its id, or, for retry, many by a filter, with a preview."""

from __future__ import annotations

import dataclasses
import datetime as dt
import getpass
from collections.abc import Callable
from typing import Any

import click

from rival_client.client import Rival
from rival_client.errors import NotPossible
from rival_client.records import Reopened, Run
from rival_workers.cli.connection import open_rival
from rival_workers.cli.inputs import json_input, since
from rival_workers.cli.output import console, error_text, json_option, print_json, table, time_text

by_option = click.option("--by", default=None, help="Who does it, for the history. [default: the user's name]")
reason_option = click.option("--reason", required=True, help="Why, for the history.")
preview_option = click.option("--dry-run", is_flag=True, help="Only show what would run again.")


def _who(by: str | None) -> str:
    if by is not None:
        return by
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return "rival"


@click.command()
@click.argument("run_id", metavar="RUN")
@click.argument("step")
@preview_option
@by_option
@json_option
def rewind(run_id: str, step: str, dry_run: bool, by: str | None, as_json: bool) -> None:
    """Let RUN go on from STEP again, whatever became of it; what came after it is undone."""
    with open_rival() as rival:
        _tell_reopened(rival.rewind(run_id, step, dry_run=dry_run, by=_who(by)), dry_run, as_json)


@click.command()
@click.argument("run_id", metavar="[RUN]", required=False)
@click.option("--workflow", help="Instead of RUN: the runs of this workflow.")
@click.option("--status", type=click.Choice(["failed", "cancelled"]), help="Instead of RUN: the runs with this status.")
@click.option("--since", callback=since, help="Only runs created since then: 90s, 15m, 2h, 7d or an ISO time.")
@click.option("--limit", type=click.IntRange(min=1), default=100, help="The newest so many.")
@click.option("--yes", is_flag=True, help="Do it; without it, runs chosen by a filter are only listed.")
@preview_option
@by_option
@json_option
def retry(
    run_id: str | None, workflow: str | None, status: str | None, since: dt.datetime | None, limit: int, yes: bool,
    dry_run: bool, by: str | None, as_json: bool,
) -> int:  # fmt: skip
    """Let a failed or cancelled RUN go on where it has stopped. Or all that --workflow, --status and --since choose."""
    if (run_id is None) == (workflow is None and status is None and since is None):
        raise click.UsageError("give either RUN or a filter: --workflow, --status, --since")
    with open_rival() as rival:
        if run_id is not None:
            _tell_reopened(rival.retry(run_id, dry_run=dry_run, by=_who(by)), dry_run, as_json)
            return 0
        found = rival.runs(workflow=workflow, status=status or "failed", since=since, limit=limit)
        if dry_run or not yes:
            return _preview(found, limit, as_json)
        return _tell_all(_retry_all(rival, found, _who(by)), as_json)


def _retry_all(rival: Rival, found: list[Run], by: str) -> dict[str, str | None]:
    """Each run with the reason why it could not be retried, if there is one: the others are, all the same."""
    done: dict[str, str | None] = {}
    for run in found:
        try:
            rival.retry(run.run_id, by=by)
            done[run.run_id] = None
        except NotPossible as error:
            done[run.run_id] = str(error)
    return done


def _preview(found: list[Run], limit: int, as_json: bool) -> int:
    if as_json:
        print_json({"would_retry": [run.run_id for run in found]})
        return 0
    if found:
        rows = [
            (run.run_id, run.workflow, run.status, time_text(run.created_at), run.failed_step or "",
             error_text(run.error, 80))
            for run in found
        ]  # fmt: skip
        console().print(table(("run", "workflow", "status", "created", "failed at", ""), rows))
    more = f" (the newest {limit}; --limit takes more)" if len(found) == limit else ""
    click.echo(f"would retry {len(found)} runs{more}. Nothing was changed: add --yes to do it.")
    return 0


def _tell_all(done: dict[str, str | None], as_json: bool) -> int:
    refused = {run_id: why for run_id, why in done.items() if why is not None}
    if as_json:
        print_json({"retried": [run_id for run_id in done if run_id not in refused], "refused": refused})
    else:
        for why in refused.values():
            click.echo(why, err=True)
        click.echo(f"retried {len(done) - len(refused)} runs" + (f", refused {len(refused)}" if refused else ""))
    return 1 if refused else 0


def _tell_reopened(reopened: Reopened, dry_run: bool, as_json: bool) -> None:
    if as_json:
        print_json(dataclasses.asdict(reopened) | {"dry_run": dry_run})
        return
    begins = ", ".join(reopened.opened) or "its first step"
    later = [path for path in reopened.runs_again if path not in reopened.opened]
    click.echo(f"{reopened.run_id} {'would go' if dry_run else 'goes'} on at {begins}")
    if later:
        click.echo(f"undone: {', '.join(later)}")
    if reopened.children:
        click.echo(
            f"child runs of before{', cancelled if open' if not dry_run else ''}: {', '.join(reopened.children)}"
        )


@click.command()
@click.argument("run_id", metavar="RUN")
@by_option
@json_option
def pause(run_id: str, by: str | None, as_json: bool) -> None:
    """Let RUN start nothing new; what is running ends."""
    _switch(run_id, as_json, "paused", lambda rival: rival.pause(run_id, by=_who(by)))


@click.command()
@click.argument("run_id", metavar="RUN")
@by_option
@json_option
def resume(run_id: str, by: str | None, as_json: bool) -> None:
    """Let a paused RUN go on."""
    _switch(run_id, as_json, "resumed", lambda rival: rival.resume(run_id, by=_who(by)))


def _switch(run_id: str, as_json: bool, what: str, act: Callable[[Rival], bool]) -> None:
    with open_rival() as rival:
        changed = act(rival)
        run = rival.state(run_id, fold=0)
    now = "paused" if run.is_paused else run.status
    if as_json:
        print_json({"run_id": run_id, what: changed, "status": run.status, "is_paused": run.is_paused})
    else:
        click.echo(f"{what} {run_id}" if changed else f"{run_id} is {now}: nothing to do")


@click.command()
@click.argument("run_id", metavar="RUN")
@click.argument("step")
@reason_option
@by_option
@json_option
def skip(run_id: str, step: str, reason: str, by: str | None, as_json: bool) -> None:
    """Let an open STEP of RUN, or the one that it has stopped at, end as skipped."""
    _settle(run_id, step, as_json, "skipped", lambda rival: rival.skip(run_id, step, reason=reason, by=_who(by)))


@click.command("set-result")
@click.argument("run_id", metavar="RUN")
@click.argument("step")
@click.argument("value", metavar="JSON", callback=json_input)
@reason_option
@by_option
@json_option
def set_result(run_id: str, step: str, value: Any, reason: str, by: str | None, as_json: bool) -> None:
    """Let an open STEP of RUN, or the one that it has stopped at, end with the result JSON (or @FILE, or -)."""

    def act(rival: Rival) -> None:
        rival.set_result(run_id, step, value, reason=reason, by=_who(by))

    _settle(run_id, step, as_json, "completed", act)


def _settle(run_id: str, step: str, as_json: bool, status: str, act: Callable[[Rival], None]) -> None:
    with open_rival() as rival:
        act(rival)
    if as_json:
        print_json({"run_id": run_id, "step": step, "status": status})
    else:
        click.echo(f"{step} of {run_id} is {status}; the run goes on")
