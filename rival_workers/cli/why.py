"""`rival why`: what a run waits for."""

from __future__ import annotations

import dataclasses

import click
from rich.text import Text

from rival_client.model.why.why_records import Reason
from rival_workers.cli.completion import complete_runs
from rival_workers.cli.connection import open_rival
from rival_workers.cli.display.formats import printable, status_text, time_text
from rival_workers.cli.display.output import console, json_option, print_json


@click.command()
@click.argument("run_id", metavar="RUN", shell_complete=complete_runs)
@json_option
def why(run_id: str, as_json: bool) -> int:
    """Explain what RUN waits for, since when, until when, and what can end it."""
    with open_rival() as rival:
        found = rival.why(run_id)
    if as_json:
        print_json(dataclasses.asdict(found))
        return 0
    out = console()
    out.print(Text(printable(run_id), style="bold"), status_text(found.status))
    for reason in found.reasons:
        for line in _lines(reason):
            out.print(Text(printable(line)))
    if found.more:
        out.print("There are more open steps than these.")
    return 0


def _lines(reason: Reason) -> list[str]:
    facts = {
        "since": time_text(reason.since),
        "until": time_text(reason.until),
        "ends it": reason.who,
        "do": reason.do,
        "command": reason.command,
        "because": "; ".join(reason.evidence),
    }
    return [f"- {reason.text}", *(f"    {name:8} {value}" for name, value in facts.items() if value)]
