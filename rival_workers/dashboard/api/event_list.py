"""Routes of events: list them, read one with its deliveries, send one."""

from __future__ import annotations

import base64
import datetime as dt
import json
from typing import Any, Literal

from pydantic import Field

from rival_client.model.checks import amounts, argument_errors, arguments
from rival_client.sql.audit import write_audit
from rival_client.sql.reads.event_reads import EventRecord, find_event, list_events
from rival_client.sql.reads.waits import list_deliveries
from rival_workers.dashboard.commands import Commands, as_json, call_text, commands, shell_text
from rival_workers.dashboard.problem_json import Refused
from rival_workers.dashboard.route import Answer, Call, Confirmed, Form, Route
from rival_workers.dashboard.values import fields, moment, moments
from rival_workers.dashboard.veil import Veil

_DELIVERIES = 200


class EventsQuery(Form):
    topic: str | None = None
    after: str | None = None
    limit: int = Field(default=50, ge=1, le=200)


def events(call: Call) -> dict[str, Any]:
    query = call.query
    topic = arguments.optional(arguments.name, "topic", query.topic)
    with call.board.database.snapshot() as connection:
        found = list_events(connection, topic, query.limit, behind=_behind(query.after))
    following, veil = _cursor(found[-1]) if len(found) == query.limit else None, call.board.wide_veil()
    return {"items": [event_view(one, veil) for one in found], "next": following}


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
        raise argument_errors.invalid("after", cursor, "a cursor: give the `next` of the page before") from None


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
    return {**event_view(event, call.board.wide_veil()), "deliveries": deliveries}


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
    Route("GET", "/events", "viewer", events, "List events, the newest first", query=EventsQuery, does="events"),
    Route("GET", "/events/{event_id}", "viewer", one_event, "Read an event and who has received it"),
    Route("POST", "/events", "operator", send, "Send an event", body=Sending, status=201, does="emit"),
)
