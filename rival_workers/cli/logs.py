"""`rival logs`: prints the log entries of a run's steps."""

from __future__ import annotations

import click
from rich.text import Text

from rival_client.api.client import Rival
from rival_client.model.run_entries import LogEntry
from rival_client.sql.reads.logs import LEVELS
from rival_workers.cli.completion import complete_runs
from rival_workers.cli.connection import open_rival
from rival_workers.cli.display.formats import one_line, printable, time_text
from rival_workers.cli.display.output import console, print_json_line
from rival_workers.cli.display.tracebacks import full_option, indented, readable
from rival_workers.cli.polling import follow_logs, read_logs

#: A failure's message already contains these fields.
_HIDDEN_FIELDS = ("traceback", "location")
_LEVEL_STYLES = {"debug": "dim", "info": "", "warning": "yellow", "error": "red"}


@click.command()
@click.argument("run_id", metavar="RUN", shell_complete=complete_runs)
@click.option("--step", metavar="PATH", help="Only this step and the steps inside it.")
@click.option("--level", type=click.Choice(LEVELS), default="debug", help="Only this level and above.")
@click.option("--follow", "-f", "follows", is_flag=True, help="Continue until the run has ended.")
@full_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line, for programs.")
def logs(run_id: str, step: str | None, level: str, follows: bool, full: bool, as_json: bool) -> None:
    """Print what the steps of RUN logged, oldest first."""
    out, entry = console(), None
    with open_rival() as rival:
        for entry in follow_logs(rival, run_id, step, level) if follows else read_logs(rival, run_id, step, level):
            if as_json:
                print_json_line(entry)
            else:
                out.print(_log_line(entry, full))
        if step is not None and entry is None:
            _check_step(rival, run_id, step)


def _check_step(rival: Rival, run_id: str, step: str) -> None:
    inside = (f"{step}/", f"{step}[", f"{step}!")
    if not any(one.path == step or one.path.startswith(inside) for one in rival.state(run_id).steps):
        raise click.ClickException(
            f"No step {step!r} of run {run_id!r} has begun: `rival show {run_id}` lists its steps."
        )


def _log_line(entry: LogEntry, full: bool) -> Text:
    step = entry.path if entry.attempt == 1 else f"{entry.path} (attempt {entry.attempt})"
    fields = "".join(f" {name}={one_line(value)}" for name, value in entry.fields.items() if name not in _HIDDEN_FIELDS)
    text = Text(f"{time_text(entry.at)} ", style="dim")
    text.append(f"{entry.level:7} ", style=_LEVEL_STYLES.get(entry.level, ""))
    text.append(f"{printable(step)} ", style="bold")
    text.append(printable(entry.message))
    text.append(printable(fields), style="dim")
    if traceback := entry.fields.get("traceback"):
        text.append("\n" + indented(str(traceback) if full else readable(str(traceback))))
    return text
