"""Events: what a producer tells the runs. An event is a row; a worker finds out who waits for it, or keeps it."""

from __future__ import annotations

import datetime as dt
import re
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel
from sqlalchemy import Connection, Text, literal, select, text
from sqlalchemy.dialects import sqlite

from rival_client.inputs import checked_run_id, new_run_id
from rival_client.payload import Json, dump
from rival_client.tables import after, events, now
from rival_client.topics import topic_of

Delivery = Literal["one", "all"]
#: Seconds for which an event that nobody waits for is kept.
KEPT_FOR = 7 * 24 * 3600.0

_INSERT = """
INSERT INTO rival_events (id, topic, key, run_id, payload, delivery, status, ring_at, rings, created_at, expires_at)
VALUES (:id, :topic, :key, :run_id, CAST(:payload AS jsonb), :delivery, 'sent',
        clock_timestamp() + make_interval(secs => CAST(:grace AS double precision)),
        CASE WHEN :grace = 0 THEN -1 ELSE 0 END, clock_timestamp(),
        clock_timestamp() + make_interval(secs => CAST(:expires AS double precision)))
ON CONFLICT (id) DO NOTHING
RETURNING id
"""
_INSERT_POSTGRES = text(_INSERT)
#: The same in psycopg's own form, so that it can join a psycopg transaction.
INSERT_PSYCOPG = re.sub(r"(?<!:):(\w+)", r"%(\1)s", _INSERT)


@dataclass(frozen=True)
class Event:
    """One event as it is sent."""

    id: str
    topic: str
    payload: Json
    key: str | None = None
    run_id: str | None = None
    delivery: Delivery = "one"
    expires: float = KEPT_FOR

    def parameters(self, grace: float) -> dict[str, Any]:
        return {
            "id": self.id, "topic": self.topic, "key": self.key, "run_id": self.run_id, "payload": str(self.payload),
            "delivery": self.delivery, "expires": self.expires, "grace": grace,
        }  # fmt: skip


@dataclass(frozen=True)
class Sent:
    """What `send_event` gives back at once. "duplicate": an event with this id had been sent before."""

    event_id: str
    status: Literal["sent", "duplicate"]


@dataclass(frozen=True)
class EventRecord:
    """An event as it is now. "sent": on its way; "kept": nobody has waited for it yet."""

    event_id: str
    topic: str
    key: str | None
    run_id: str | None
    payload: Any
    delivery: Delivery
    status: Literal["sent", "kept", "consumed"]
    created_at: dt.datetime
    expires_at: dt.datetime


def made_event(
    topic: str | BaseModel, payload: Any, key: str | None, run_id: str | None, delivery: Delivery,
    expires: float | dt.timedelta, event_id: str | None, max_payload: int,
) -> Event:  # fmt: skip
    """An event as it was asked for; ValueError when it makes no sense."""
    if isinstance(topic, BaseModel):
        if payload is not None:
            raise ValueError("a typed event is its own payload: give no other")
        topic, payload = topic_of(type(topic)), topic
    if not isinstance(topic, str) or not topic:
        raise ValueError(f"the topic must be a non-empty string or a pydantic model, not {topic!r}")
    if delivery not in ("one", "all"):
        raise ValueError(f"delivery is 'one' or 'all', not {delivery!r}")
    seconds = expires.total_seconds() if isinstance(expires, dt.timedelta) else float(expires)
    content = dump(payload, what=f"the payload of event {topic!r}", limit=max_payload)
    an_id = new_run_id() if event_id is None else checked_run_id(event_id)
    return Event(an_id, topic, content, None if key is None else str(key), run_id, delivery, seconds)


def insert_event(connection: Connection, event: Event, grace: float) -> bool:
    """False: there is one with this id already. `grace` 0: nobody will ring for it, the keeper must."""
    if connection.dialect.name == "postgresql":
        return connection.execute(_INSERT_POSTGRES, event.parameters(grace)).first() is not None
    statement = (
        sqlite.insert(events)
        .values(
            id=event.id, topic=event.topic, key=event.key, run_id=event.run_id,
            payload=literal(str(event.payload), Text), delivery=event.delivery, status="sent",
            ring_at=after(grace), rings=-1 if grace == 0 else 0, created_at=now(), expires_at=after(event.expires),
        )
        .on_conflict_do_nothing()
        .returning(events.c.id)
    )  # fmt: skip
    return connection.execute(statement).first() is not None


def list_events(connection: Connection, topic: str | None = None, limit: int = 50) -> list[EventRecord]:
    """The newest first."""
    statement = select(events).order_by(events.c.created_at.desc(), events.c.id.desc()).limit(limit)
    if topic is not None:
        statement = statement.where(events.c.topic == topic)
    return [
        EventRecord(r.id, r.topic, r.key, r.run_id, r.payload, r.delivery, r.status, r.created_at, r.expires_at)
        for r in connection.execute(statement)
    ]
