"""`rival recover`: publish again the messages of everything that waits, and count what waits."""

from __future__ import annotations

import dataclasses

import click

from rival_client.model.recovery import Recovery
from rival_workers.cli.connection import open_rival
from rival_workers.cli.display.output import ProgressLine, json_option, print_json


@click.command()
@json_option
def recover(as_json: bool) -> int:
    """Publish again the messages for everything that waits for a worker, and count what waits.

    Safe at any time, also with a busy fleet. The live workers do the work; without this command they do it later.
    """
    with open_rival() as rival, ProgressLine(as_json) as line:
        line.show("publish again: the first rows …")
        found = rival.recover(on_batch=lambda rows: line.show(f"publish again: {rows:,} runs, steps and events …"))
    if as_json:
        print_json(dataclasses.asdict(found))
    else:
        click.echo("\n".join(_lines(found)))
    return 0


def _lines(found: Recovery) -> list[str]:
    alive = f"{found.live_executors} executor(s) are alive" if found.live_executors else _NO_EXECUTOR
    return [
        f"{found.republished} run(s), step(s) and event(s) waited for a worker: their messages are published now "
        f"({found.resumed} of them had waited until a time that has passed)",
        f"{found.lost} attempt(s) belong to dead executors: live workers take them over within a lease",
        f"{found.parked} are parked: no worker had their code (see `rival ls`)",
        f"{found.orphans} child run(s) of ended parents will be cancelled",
        f"{found.suspended} run(s) are suspended",
        f"{found.waiting_for_time} step(s) wait until a time, {found.waiting_for_events} for an event",
        alive,
    ]


_NO_EXECUTOR = "no executor is alive: start a worker, which does all of this"
