"""`rival show`: one run as it is, or with --watch until it has ended."""

from __future__ import annotations

import dataclasses
import io
import time

import click
from rich.console import Console
from rich.live import Live
from rich.text import Text

from rival_client.api.client import Rival
from rival_client.model import statuses
from rival_client.model.records import RunState
from rival_client.model.run_entries import HistoryEntry
from rival_workers.cli.completion import complete_runs
from rival_workers.cli.connection import open_rival
from rival_workers.cli.display import run_text as showing
from rival_workers.cli.display.formats import error_text, one_line, printable, seconds_text, status_text
from rival_workers.cli.display.output import console, json_option, print_json, print_json_line
from rival_workers.cli.display.record_json import run_as_json
from rival_workers.cli.display.tracebacks import full_option
from rival_workers.cli.polling import POLL_INTERVAL, follow_history, read_logs
from rival_workers.drawing import run_charts
from rival_workers.engine.plan import Plan


@click.command()
@click.argument("run_id", metavar="RUN", shell_complete=complete_runs)
@click.option("--all", "every", is_flag=True, help="Every item, iteration and traceback, also when there are many.")
@click.option("--history", is_flag=True, help="Also the history of the run.")
@click.option("--timeline", is_flag=True, help="Also when each step waited and ran, as bars.")
@click.option("--logs", is_flag=True, help="Also what its steps logged.")
@click.option("--watch", "watches", is_flag=True, help="Follow it until it has ended; exit code 1 unless it completed.")
@full_option
@json_option
def show(
    run_id: str, every: bool, history: bool, timeline: bool, logs: bool, watches: bool, full: bool, as_json: bool
) -> int:
    """Show RUN: its steps, attempts, result and the tracebacks of failed attempts."""
    if watches and (history or timeline or logs):
        raise click.UsageError("--watch shows steps and attempts: use it without --history, --timeline and --logs")
    with open_rival() as rival:
        if watches:
            return _watch(rival, run_id, {"every": every, "full": full}, as_json)
        state = rival.state(run_id, fold=None if every or as_json else showing.MANY)
        plan = showing.plan_of(rival, state)
        entries = rival.history(run_id) if history or timeline else []
        lines = list(read_logs(rival, run_id)) if logs else None
    if as_json:
        sections = {
            "history": entries if history else None,
            "logs": lines,
            "timeline": run_charts.tracks(entries) if timeline else None,
        }
        print_json(run_as_json(state) | {name: found for name, found in sections.items() if found is not None})
    else:
        shown = entries if history else None
        drawn = entries if timeline else None
        showing.show_run(console(), state, plan, shown, lines, drawn, every=every, full=full)
    return 0


# -- watching ---------------------------------------------------------------------------------------------


def _watch(rival: Rival, run_id: str, how: dict[str, bool], as_json: bool) -> int:
    """Redraws on a terminal; else prints one line per entry of the history. The first read rejects an unknown run."""
    state = rival.state(run_id, fold=None if how["every"] else showing.MANY)
    out = console()
    if as_json:
        for entry in follow_history(rival, run_id):
            print_json_line({"run_id": run_id, **dataclasses.asdict(entry)})
    elif out.is_terminal:
        _redraw(rival, out, state, how)
    else:
        for entry in follow_history(rival, run_id, slim=True):
            out.print(_line(run_id, entry))
    return 0 if rival.result(run_id).status == statuses.COMPLETED else 1


def _redraw(rival: Rival, out: Console, state: RunState, how: dict[str, bool]) -> None:
    """While the run lasts, what does not fit on the screen is cut; the last drawing is complete."""
    plan = showing.plan_of(rival, state)
    with Live(console=out, auto_refresh=False) as live:
        while True:
            live.update(_drawn(out, state, plan, how), refresh=True)
            if state.is_terminal:
                return
            time.sleep(POLL_INTERVAL)
            state = rival.state(state.run_id, fold=None if how["every"] else showing.MANY)


def _drawn(out: Console, state: RunState, plan: Plan, how: dict[str, bool]) -> Text:
    """Drawn on a console of its own: `Live` adds its movements of the cursor to what the terminal's console prints."""
    paper = Console(file=io.StringIO(), width=out.width, force_terminal=True, highlight=False)
    with paper.capture() as captured:
        showing.show_run(paper, state, plan, None, None, None, **how)
    return Text.from_ansi(captured.get().rstrip("\n"))


def _line(run_id: str, entry: HistoryEntry) -> Text:
    """Time, step or run, what happened, and what there is to say about it."""
    detail = entry.detail
    attempt, delay = detail.get("attempt"), detail.get("delay")
    remarks = [
        f"attempt {attempt}" if attempt not in (None, 1) else "",
        error_text(detail.get("error")),
        f"again in {seconds_text(delay)}" if delay else "",
    ]
    text = Text(f"{entry.at.astimezone():%H:%M:%S}  ", style="dim")
    text.append(f"{printable(one_line(entry.path or run_id, 60)):32} ", style="bold")
    text.append_text(status_text(f"{entry.what:16} "))
    text.append(printable("; ".join(remark for remark in remarks if remark)))
    text.rstrip()
    return text
