"""`rival recover`: have everything that waits rung for anew, and see what there is to recover."""

from __future__ import annotations

import dataclasses

import click

from rival_client.sql.recovery import Recovery
from rival_workers.cli.connection import open_rival
from rival_workers.cli.output import json_option, print_json


@click.command()
@json_option
def recover(as_json: bool) -> int:
    """Have all that waits for a worker rung for anew, and say what there is to recover.

    Safe at any time, also beside a busy fleet: the live workers do the work, as they would sooner or later anyway.
    """
    with open_rival() as rival:
        found = rival.recover()
    if as_json:
        print_json(dataclasses.asdict(found))
    else:
        click.echo("\n".join(_lines(found)))
    return 0


def _lines(found: Recovery) -> list[str]:
    alive = f"{found.live_executors} executor(s) are alive" if found.live_executors else _NOBODY
    return [
        f"{found.republished} run(s), step(s) and event(s) waited for a worker: they are rung for at once "
        f"({found.resumed} of them had waited for their time, and go on)",
        f"{found.lost} attempt(s) belong to dead executors: live workers take them over within a lease",
        f"{found.parked} are parked: no worker had their code (see `rival ls`)",
        f"{found.orphans} child run(s) of ended parents are still to be cancelled",
        f"{found.suspended} run(s) are suspended",
        f"{found.waiting_for_time} step(s) wait for their time, {found.waiting_for_events} for an event",
        alive,
    ]


_NOBODY = "no executor is alive: nothing of this happens until you start a worker"
