"""The statements that insert events, unless their topic is full. They take an open connection and never commit."""

from __future__ import annotations

from typing import Literal

from sqlalchemy import Connection, Text, insert, literal, or_, select, true

from rival_client.db.event_tables import events, waits
from rival_client.db.prepared_statement import Statement
from rival_client.db.types import after, now
from rival_client.errors import EventConflict, TopicFull
from rival_client.model.timers import first_rings
from rival_client.sql.events import Event

#: The outcome of sending an event. "other": its id is that of an event with another
#: topic, key or run; "full": the topic has no room. Both are refused.
Outcome = Literal["sent", "duplicate", "other", "full"]

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
            WHEN old.id IS NOT NULL AND (old.topic, old.key, old.run_id) IS DISTINCT FROM
                (%(topic)s, %(key)s::text, %(run_id)s::text) THEN 'other'
            WHEN there OR old.id IS NOT NULL THEN 'duplicate'
            ELSE 'full' END
FROM room LEFT JOIN rival_events AS old ON old.id = %(id)s
"""
INSERT_EVENT = Statement.of("rival_insert_event", _INSERT)
#: The same in psycopg's own form, so that it can join a psycopg transaction.
INSERT_PSYCOPG = _INSERT


def sent_unless_full(event: Event, outcome: str) -> bool:
    """False: there is one with this id already. EventConflict or TopicFull when it was refused."""
    if outcome == "other":
        raise EventConflict(event.id, event.topic)
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
    old = connection.execute(
        select(events.c.topic, events.c.key, events.c.run_id).where(events.c.id == event.id)
    ).first()
    if old is not None:
        return "duplicate" if tuple(old) == (event.topic, event.key, event.run_id) else "other"
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
    # The filter of a wait is not checked here: at worst the topic keeps one event more than its bound.
    its_key = or_(waits.c.key.is_(None), waits.c.key == event.key)
    whose = true() if event.run_id is None else waits.c.run_id == event.run_id
    waiting = select(waits.c.run_id).where(waits.c.topic == event.topic, its_key, whose).limit(1)
    return event.delivery == "one" and connection.execute(waiting).first() is not None
