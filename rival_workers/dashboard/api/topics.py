"""Routes of events: topics, who waits for them, what is kept and why it does not fit, and sending one."""

from __future__ import annotations

import base64
import datetime as dt
import json
from typing import Any, Literal

from pydantic import Field

from rival_client.model import amounts, arguments
from rival_client.model.argument_errors import invalid
from rival_client.sql.audit import write_audit
from rival_client.sql.reads.capped_counts import Count
from rival_client.sql.reads.event_reads import EventRecord, TopicCount, count_by_topic, find_event, list_events
from rival_client.sql.reads.near_misses import NearMiss, kept_events, nearest
from rival_client.sql.reads.waits import WaitRecord, count_waits, list_deliveries, list_waits
from rival_workers.dashboard.commands import Commands, as_json, call_text, commands, shell_text
from rival_workers.dashboard.problem_json import Refused
from rival_workers.dashboard.route import Answer, Call, Confirmed, Form, Route
from rival_workers.dashboard.values import Veil, fields, moment, moments
from rival_workers.dashboard.views import count_view

_DELIVERIES = 200


def topics(call: Call) -> dict[str, Any]:
    bound = call.board.rival.settings.max_events_per_topic
    with call.board.database.snapshot() as connection:
        counted = {one.topic: one for one in count_by_topic(connection, bound)}
        waiting = count_waits(connection)
    none = TopicCount("", 0, 0, bound)
    names = sorted({*counted, *waiting})
    return {"items": [_topic(name, counted.get(name, none), waiting.get(name, Count(0))) for name in names]}


def _topic(name: str, one: TopicCount, waiting: Count) -> dict[str, Any]:
    about = {"topic": name, "nearly_full": one.is_nearly_full, "waiting": count_view(waiting)}
    return about | fields(one, "sent kept bound")


class WaitsQuery(Form):
    limit: int = Field(default=50, ge=1, le=200)


def waits(call: Call) -> dict[str, Any]:
    """Each wait with the kept event that comes nearest."""
    topic = call.names["topic"]
    with call.board.database.snapshot() as connection:
        found = list_waits(connection, topic, call.query.limit)
        kept = kept_events(connection, topic)
    return {"items": [wait_view(one, nearest(one, kept), call.board.veil) for one in found]}


def wait_view(wait: WaitRecord, near: NearMiss | None, veil: Veil) -> dict[str, Any]:
    return {
        "run": wait.run_id,
        "step": wait.path,
        "topic": wait.topic,
        "key": wait.key,
        "filter": veil.hidden(wait.filter),
        "since": moment(wait.created_at),
        "nearest": None if near is None else {"event": near.event_id, "differs": list(near.differs)},
    }


class EventsQuery(Form):
    topic: str | None = None
    after: str | None = None
    limit: int = Field(default=50, ge=1, le=200)


def events(call: Call) -> dict[str, Any]:
    query = call.query
    topic = arguments.optional(arguments.name, "topic", query.topic)
    with call.board.database.snapshot() as connection:
        found = list_events(connection, topic, query.limit, behind=_behind(query.after))
    following = _cursor(found[-1]) if len(found) == query.limit else None
    return {"items": [event_view(one, call.board.veil) for one in found], "next": following}


def _cursor(event: EventRecord) -> str:
    text = json.dumps([event.created_at.isoformat(), event.event_id])
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def _behind(cursor: str | None) -> tuple[dt.datetime, str] | None:
    if cursor is None:
        return None
    try:
        at, event_id = json.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
        return amounts.moment("after", dt.datetime.fromisoformat(at)), arguments.text("after", event_id)
    except (ValueError, TypeError, RecursionError):
        raise invalid("after", cursor, "a cursor: give the `next` of the page before") from None


def event_view(event: EventRecord, veil: Veil) -> dict[str, Any]:
    return {
        "id": event.event_id,
        "run": event.run_id,
        **fields(event, "topic key delivery status"),
        **moments(event, "created_at expires_at"),
        "payload": veil.value(event.payload),
    }


def one_event(call: Call) -> dict[str, Any]:
    event_id = call.names["event_id"]
    with call.board.database.snapshot() as connection:
        event = find_event(connection, event_id)
        received = list_deliveries(connection, event_id, _DELIVERIES)
    if event is None:
        raise Refused(404, "NotFound", f"Unknown event {event_id!r}.")
    deliveries = [{"run": one.run_id, "step": one.path, "at": moment(one.at)} for one in received]
    return {**event_view(event, call.board.veil), "deliveries": deliveries}


class Sending(Confirmed):
    topic: str
    payload: Any = None
    key: str | None = None
    run_id: str | None = None
    delivery: Literal["one", "all"] = "one"
    expires: float | None = None
    event_id: str | None = None


def send(call: Call) -> Answer:
    given: Sending = call.body
    texts = _commands(call, given)
    if given.dry_run:
        return Answer({"event": given.event_id, "status": "possible", "commands": texts})
    options = given.model_dump(include={"key", "run_id", "delivery", "expires", "event_id"})
    sent = call.board.rival.send_event(given.topic, given.payload, **options)
    with call.board.rival.database.transaction() as connection:
        write_audit(connection, call.by, "send_event", f"topic:{given.topic}", event=sent.event_id)
    return Answer({"event": sent.event_id, "status": sent.status, "commands": texts}, 201)


def _commands(call: Call, given: Sending) -> Commands:
    about = given.model_dump(include={"key", "run_id", "expires", "event_id"})
    shell = shell_text("emit", given.topic, as_json(given.payload), **about, all=given.delivery == "all")
    named = {**about, "delivery": "all" if given.delivery == "all" else None}
    body = given.model_dump(exclude_defaults=True, exclude={"dry_run"})
    return commands(call.base, "events", shell, call_text("send_event", given.topic, given.payload, **named), body)


ROUTES = (
    Route("GET", "/topics", "viewer", topics, "Count events and waiting steps by topic"),
    Route("GET", "/topics/{topic}/waits", "viewer", waits, "List the steps that wait for a topic", query=WaitsQuery),
    Route("GET", "/events", "viewer", events, "List events, the newest first", query=EventsQuery, does="events"),
    Route("GET", "/events/{event_id}", "viewer", one_event, "Read an event and who has received it"),
    Route("POST", "/events", "operator", send, "Send an event", body=Sending, status=201, does="emit"),
)
