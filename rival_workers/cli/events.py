"""Events from a terminal: send one, list them."""

from __future__ import annotations

import dataclasses
from typing import Any

import click

from rival_client.sql.events import TopicCount
from rival_workers.cli.completion import complete_runs
from rival_workers.cli.connection import open_rival
from rival_workers.cli.inputs import json_input
from rival_workers.cli.output import console, json_option, one_line, print_json, table, time_text


@click.command()
@click.argument("topic")
@click.argument("value", metavar="[JSON]", callback=json_input, required=False)
@click.option("--key", help="Only for steps that wait for this key, or for any.")
@click.option("--run-id", shell_complete=complete_runs, help="Only for this run.")
@click.option("--all", "to_all", is_flag=True, help="For everybody who waits, not only for the one that waits longest.")
@click.option(
    "--expires", type=click.FloatRange(min=0), metavar="SECONDS", help="How long it is kept (RIVAL_EVENT_RETENTION)."
)
@click.option("--event-id", help="The event's id; the same id twice is one event.")
@json_option
def emit(
    topic: str, value: Any, key: str | None, run_id: str | None, to_all: bool, expires: float | None,
    event_id: str | None, as_json: bool,
) -> int:  # fmt: skip
    """Send an event with the payload JSON (or @FILE, or - for standard input) to the runs that wait for TOPIC."""
    with open_rival() as rival:
        sent = rival.send_event(
            topic, value, key=key, run_id=run_id, delivery="all" if to_all else "one", expires=expires,
            event_id=event_id,
        )  # fmt: skip
    if as_json:
        print_json(dataclasses.asdict(sent))
    else:
        click.echo(f"sent {sent.event_id}" if sent.status == "sent" else f"{sent.event_id} was sent before")
    return 0


@click.command()
@click.option("--topic", help="Only this topic.")
@click.option("--limit", type=click.IntRange(min=1), default=20, help="How many.")
@click.option("--counts", is_flag=True, help="How many each topic has on their way and keeps, instead of the events.")
@json_option
def events(topic: str | None, limit: int, counts: bool, as_json: bool) -> int:
    """List events, newest first; and tell which topics keep nearly as many as they may."""
    with open_rival() as rival:
        found = [] if counts else rival.events(topic, limit)
        topics = rival.topics(topic)
    if as_json:
        print_json([dataclasses.asdict(one) for one in (topics if counts else found)])
        return 0
    rows = [
        (one.event_id, one.topic, one.key or "", one.status, time_text(one.created_at), one_line(one.payload))
        for one in found
    ]
    if counts:
        console().print(table(("topic", "on their way", "kept", "bound"), map(_counted, topics)))
    else:
        console().print(table(("event", "topic", "key", "status", "sent", "payload"), rows))
    for one in topics:
        if one.is_nearly_full:
            click.echo(f"topic {one.topic} keeps {one.kept:,} of {one.bound:,} events: more will be refused", err=True)
    return 0


def _counted(one: TopicCount) -> tuple[str, str, str, str]:
    return one.topic, f"{one.sent:,}", f"{one.kept:,}", f"{one.bound:,}" if one.bound else "none"
