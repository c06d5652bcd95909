"""Events that producers send to runs. An event is a row; a worker delivers it to the steps that wait, or keeps it."""

from __future__ import annotations

import datetime as dt
import secrets
import threading
import time
from dataclasses import dataclass
from typing import Any, Literal, get_args

from pydantic import BaseModel
from sqlalchemy import Connection, Text, case, func, insert, literal, or_, select, true, tuple_

from rival_client.db.event_tables import events, waits
from rival_client.db.prepared import Statement
from rival_client.db.types import after, now
from rival_client.errors import InvalidArgument, TopicFull
from rival_client.model import amounts, arguments
from rival_client.model.payload import Json, dump
from rival_client.model.timers import first_rings
from rival_client.model.topics import topic_of
from rival_client.settings import Settings

Delivery = Literal["one", "all"]
#: The part of its bound from which on a topic is nearly full.
NEARLY_FULL = 0.8
#: What became of an event that was to be sent. "full": it was refused, see `refuse_full`.
Outcome = Literal["sent", "duplicate", "full"]

# A topic has room while it keeps fewer events than its bound, and always for an event that a step waits for: it will
# not be kept. The look at what is kept reads as many entries of an index as there are, at most the bound.
# Postgres takes a parameter's type from its first place: the payload must not be jsonb there, which rewrites values.
_INSERT = """
WITH room AS (
    SELECT %(bound)s::int = 0
        OR %(delivery)s::text = 'one' AND EXISTS (
            SELECT 1 FROM rival_waits
            WHERE topic = %(topic)s AND (key IS NULL OR key = %(key)s::text)
              AND (%(run_id)s::text IS NULL OR run_id = %(run_id)s::text)
              AND (filter IS NULL OR %(payload)s::json::jsonb @> filter)
        )
        OR NOT EXISTS (
            SELECT 1 FROM rival_events
            WHERE topic = %(topic)s AND status = 'kept' AND expires_at > statement_timestamp()
            OFFSET greatest(%(bound)s::int - 1, 0) LIMIT 1
        ) AS there
), new AS (
    INSERT INTO rival_events (id, topic, key, run_id, payload, delivery, status, ring_at, rings, created_at, expires_at)
    SELECT %(id)s, %(topic)s, %(key)s::text, %(run_id)s::text, %(payload)s::json, %(delivery)s::text, 'sent',
           clock_timestamp() + make_interval(secs => %(grace)s::double precision),
           CASE WHEN %(grace)s::double precision = 0 THEN -1 ELSE 0 END, clock_timestamp(),
           clock_timestamp() + make_interval(secs => %(expires)s::double precision)
    FROM room WHERE there
    ON CONFLICT (id) DO NOTHING
    RETURNING id
)
SELECT CASE WHEN EXISTS (SELECT 1 FROM new) THEN 'sent'
            WHEN there OR EXISTS (SELECT 1 FROM rival_events WHERE id = %(id)s) THEN 'duplicate'
            ELSE 'full' END
FROM room
"""
INSERT_EVENT = Statement.of("rival_insert_event", _INSERT)
#: The same in psycopg's own form, so that it can join a psycopg transaction.
INSERT_PSYCOPG = _INSERT


@dataclass(frozen=True)
class Event:
    """One event as it is sent."""

    id: str
    topic: str
    payload: Json
    key: str | None
    run_id: str | None
    delivery: Delivery
    expires: float
    #: How many the topic may keep; 0: any number.
    bound: int

    def parameters(self, grace: float) -> dict[str, Any]:
        return {
            "id": self.id,
            "topic": self.topic,
            "key": self.key,
            "run_id": self.run_id,
            "payload": str(self.payload),
            "delivery": self.delivery,
            "expires": self.expires,
            "grace": grace,
            "bound": self.bound,
        }


@dataclass(frozen=True)
class Sent:
    """What `send_event` gives back at once. "duplicate": an event with this id had been sent before."""

    event_id: str
    status: Literal["sent", "duplicate"]


@dataclass(frozen=True)
class EventRecord:
    """An event as it is now. "sent": on its way; "kept": no step has waited for it yet."""

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
    topic: str | BaseModel,
    payload: Any,
    key: str | None,
    run_id: str | None,
    delivery: Delivery,
    expires: float | dt.timedelta | None,
    event_id: str | None,
    settings: Settings,
) -> Event:
    """An event as it was asked for; InvalidArgument when it makes no sense."""
    if isinstance(topic, BaseModel):
        if payload is not None:
            raise InvalidArgument("payload", "a typed event is its own payload: give no other.")
        topic, payload = topic_of(type(topic)), topic
    topic = arguments.name("topic", topic)
    return Event(
        id=_new_id() if event_id is None else arguments.new_id("event_id", event_id),
        topic=topic,
        payload=dump(payload, what=f"the payload of event {topic!r}", limit=settings.max_payload),
        key=None if key is None else arguments.key(key),
        run_id=None if run_id is None else arguments.run_id(run_id),
        delivery=arguments.choice("delivery", delivery, get_args(Delivery)),
        expires=settings.event_retention if expires is None else amounts.seconds("expires", expires),
        bound=settings.max_events_per_topic,
    )


_id_lock = threading.Lock()
_last_id = 0


def _new_id() -> str:
    """Unique, and greater than the one before in this process: it decides between events of the same microsecond."""
    global _last_id
    with _id_lock:
        _last_id = max(_last_id + 1, time.time_ns() // 1000)
        return f"{_last_id:013x}{secrets.token_hex(10)}"


def sent_unless_full(event: Event, outcome: str) -> bool:
    """False: there is one with this id already. TopicFull when it was refused."""
    if outcome == "full":
        raise TopicFull(event.topic, event.bound)
    return outcome == "sent"


def insert_event(connection: Connection, event: Event, grace: float) -> bool:
    """False: there is one with this id already. `grace` 0: only the keeper publishes it."""
    if connection.dialect.name == "postgresql":
        [outcome] = connection.exec_driver_sql(_INSERT, event.parameters(grace)).one()
    else:
        outcome = _insert_on_sqlite(connection, event, grace)
    return sent_unless_full(event, outcome)


def _insert_on_sqlite(connection: Connection, event: Event, grace: float) -> Outcome:
    if connection.execute(select(events.c.id).where(events.c.id == event.id)).first() is not None:
        return "duplicate"
    if event.bound and not _has_room(connection, event):
        return "full"
    connection.execute(
        insert(events).values(
            id=event.id,
            topic=event.topic,
            key=event.key,
            run_id=event.run_id,
            payload=literal(str(event.payload), Text),
            delivery=event.delivery,
            status="sent",
            ring_at=after(grace),
            rings=first_rings(grace),
            created_at=now(),
            expires_at=after(event.expires),
        )
    )
    return "sent"


def _has_room(connection: Connection, event: Event) -> bool:
    kept = (events.c.topic == event.topic, events.c.status == "kept", events.c.expires_at > now())
    if connection.execute(select(events.c.id).where(*kept).offset(event.bound - 1).limit(1)).first() is None:
        return True
    # What a wait asks of the payload is not looked at here: at worst an event more than the bound is kept.
    its_key = or_(waits.c.key.is_(None), waits.c.key == event.key)
    whose = true() if event.run_id is None else waits.c.run_id == event.run_id
    waiting = select(waits.c.run_id).where(waits.c.topic == event.topic, its_key, whose).limit(1)
    return event.delivery == "one" and connection.execute(waiting).first() is not None


@dataclass(frozen=True)
class TopicCount:
    """How many events a topic has: on their way, kept, and how many it may keep (0: any number)."""

    topic: str
    sent: int
    kept: int
    bound: int

    @property
    def is_nearly_full(self) -> bool:
        return bool(self.bound) and self.kept >= self.bound * NEARLY_FULL


def count_by_topic(connection: Connection, bound: int, topic: str | None = None) -> list[TopicCount]:
    """Topics with undelivered events, the fullest first."""
    of = [func.sum(case((events.c.status == status, 1), else_=0)).label(status) for status in ("sent", "kept")]
    statement = select(events.c.topic, *of).where(events.c.status != "consumed", events.c.expires_at > now())
    if topic is not None:
        statement = statement.where(events.c.topic == topic)
    found = connection.execute(statement.group_by(events.c.topic)).all()
    counts = [TopicCount(row.topic, row.sent, row.kept, bound) for row in found]
    return sorted(counts, key=lambda one: (-one.kept, one.topic))


def list_events(
    connection: Connection,
    topic: str | None = None,
    limit: int = 50,
    *,
    behind: tuple[dt.datetime, str] | None = None,
) -> list[EventRecord]:
    """The newest first; `behind`: the time and the id of the last one of the page before."""
    statement = select(events).order_by(events.c.created_at.desc(), events.c.id.desc()).limit(limit)
    if topic is not None:
        statement = statement.where(events.c.topic == topic)
    if behind is not None:
        statement = statement.where(tuple_(events.c.created_at, events.c.id) < behind)
    return [event_of(row) for row in connection.execute(statement)]


def find_event(connection: Connection, event_id: str) -> EventRecord | None:
    row = connection.execute(select(events).where(events.c.id == event_id)).first()
    return None if row is None else event_of(row)


def event_of(row: Any) -> EventRecord:
    return EventRecord(
        row.id, row.topic, row.key, row.run_id, row.payload, row.delivery, row.status, row.created_at, row.expires_at
    )
