"""`rival emit` and `rival events`: send an event, list events."""

from __future__ import annotations

import dataclasses
from typing import Any

import click

from rival_client.sql.reads.event_reads import TopicCount
from rival_workers.cli.completion import complete_runs
from rival_workers.cli.connection import open_rival
from rival_workers.cli.display.formats import one_line, time_text
from rival_workers.cli.display.output import console, json_option, print_json, table
from rival_workers.cli.options.inputs import json_input


@click.command()
@click.argument("topic")
@click.argument("value", metavar="[JSON]", callback=json_input, required=False)
@click.option("--key", help="Only for steps that wait for this key or for any key.")
@click.option("--run-id", shell_complete=complete_runs, help="Only for this run.")
@click.option(
    "--all", "to_all", is_flag=True, help="For all steps that wait, not only the one that has waited longest."
)
@click.option(
    "--expires", type=click.FloatRange(min=0), metavar="SECONDS", help="How long it is kept (RIVAL_EVENT_RETENTION)."
)
@click.option("--event-id", help="The event's id; the same id twice is one event.")
@json_option
def emit(topic: str, value: Any, to_all: bool, as_json: bool, **options: Any) -> int:
    """Send an event with the payload JSON (or @FILE, or - for standard input) to the runs that wait for TOPIC."""
    with open_rival() as rival:
        sent = rival.send_event(topic, value, delivery="all" if to_all else "one", **options)
    if as_json:
        print_json(dataclasses.asdict(sent))
    else:
        click.echo(f"sent {sent.event_id}" if sent.status == "sent" else f"{sent.event_id} was sent before")
    return 0


@click.command()
@click.option("--topic", help="Only this topic.")
@click.option("--limit", type=click.IntRange(min=1), default=20, help="At most this many events.")
@click.option(
    "--counts", is_flag=True, help="The number of undelivered and kept events of each topic, instead of events."
)
@json_option
def events(topic: str | None, limit: int, counts: bool, as_json: bool) -> int:
    """List events, newest first, and the topics that are nearly full."""
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
    if not (topics if counts else found):
        click.echo("no events")
    elif counts:
        console().print(table(("topic", "undelivered", "kept", "limit"), map(_counted, topics)))
    else:
        console().print(table(("event", "topic", "key", "status", "sent", "payload"), rows))
    for one in topics:
        if one.is_nearly_full:
            full = f"{one.kept:,} of at most {one.bound:,} events"
            click.echo(f"topic {one.topic} keeps {full}: when it is full, events are refused", err=True)
    return 0


def _counted(one: TopicCount) -> tuple[str, str, str, str]:
    return one.topic, f"{one.sent:,}", f"{one.kept:,}", f"{one.bound:,}" if one.bound else "none"
