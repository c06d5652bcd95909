"""`rival logs`: what a run's steps have logged, once or as it comes."""

from __future__ import annotations

import time
from collections.abc import Iterator

import click
from rich.text import Text

from rival_client.api.client import Rival
from rival_client.db.tables import RUN_TERMINAL
from rival_client.model.records import LogEntry
from rival_client.sql.logs import LEVELS
from rival_client.sql.run_reads import read_status
from rival_workers.cli.completion import complete_runs
from rival_workers.cli.connection import open_rival
from rival_workers.cli.output import console, one_line, print_json_line, printable, time_text
from rival_workers.cli.tracebacks import indented

#: A failure's message has its location.
_OWN_LINES = ("traceback", "location")
_STYLES = {"debug": "dim", "info": "", "warning": "yellow", "error": "red"}
#: Seconds between two looks at a run that is followed.
_EVERY = 0.5


@click.command()
@click.argument("run_id", metavar="RUN", shell_complete=complete_runs)
@click.option("--step", metavar="PATH", help="Only this step, and what belongs to it.")
@click.option("--level", type=click.Choice(LEVELS), default="debug", help="Only this level and above.")
@click.option("--follow", "-f", "follows", is_flag=True, help="Go on until the run has ended.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line, for programs.")
def logs(run_id: str, step: str | None, level: str, follows: bool, as_json: bool) -> None:
    """Print what the steps of RUN have logged, the oldest first."""
    out = console()
    with open_rival() as rival:
        for entry in follow(rival, run_id, step, level) if follows else read(rival, run_id, step, level):
            if as_json:
                print_json_line(entry)
            else:
                out.print(line(entry))


def read(
    rival: Rival, run_id: str, step: str | None = None, level: str = "debug", after: int | None = None
) -> Iterator[LogEntry]:
    """All there is now, page by page."""
    while page := rival.logs(run_id, step, level, after):
        yield from page
        after = page[-1].id


def follow(rival: Rival, run_id: str, step: str | None, level: str) -> Iterator[LogEntry]:
    """All there is, and all that comes. A run's status is read before its log: what it had logged when it ended is
    there then."""
    after = None
    while True:
        ended = _has_ended(rival, run_id)
        for entry in read(rival, run_id, step, level, after):
            after = entry.id
            yield entry
        if ended:
            return
        time.sleep(_EVERY)


def _has_ended(rival: Rival, run_id: str) -> bool:
    with rival.database.autocommit() as connection:
        found = read_status(connection, run_id)
    return found is None or found[1] in RUN_TERMINAL


def line(entry: LogEntry) -> Text:
    step = entry.path if entry.attempt == 1 else f"{entry.path} (attempt {entry.attempt})"
    fields = "".join(f" {name}={one_line(value)}" for name, value in entry.fields.items() if name not in _OWN_LINES)
    said = Text(f"{time_text(entry.at)} ", style="dim")
    said.append(f"{entry.level:7} ", style=_STYLES.get(entry.level, ""))
    said.append(f"{printable(step)} ", style="bold")
    said.append(printable(entry.message))
    said.append(printable(fields), style="dim")
    if traceback := entry.fields.get("traceback"):
        said.append("\n" + indented(str(traceback)))
    return said
