"""Tables of events, the steps that wait for them, and which step got which event."""

from __future__ import annotations

from sqlalchemy import CheckConstraint, Column, Index, Integer, Table, text

from rival_client.db.schema import metadata, one_of_statuses
from rival_client.db.types import Filter, Name, Payload, Timestamp

EVENT_STATUSES = ("sent", "kept", "consumed")

# Events. "sent": no worker has looked for waiting steps yet; "kept": no step waited for it.
events = Table(
    "rival_events",
    metadata,
    Column("id", Name, primary_key=True),
    Column("topic", Name, nullable=False),
    Column("key", Name),
    # Only for this run.
    Column("run_id", Name),
    Column("payload", Payload),
    Column("delivery", Name, nullable=False),
    Column("status", Name, nullable=False),
    Column("ring_at", Timestamp),
    Column("rings", Integer, nullable=False, server_default="0"),
    Column("created_at", Timestamp, nullable=False),
    Column("expires_at", Timestamp, nullable=False),
    CheckConstraint(
        f"{one_of_statuses(EVENT_STATUSES)} AND delivery IN ('one', 'all') "
        "AND (status = 'sent') = (ring_at IS NOT NULL)",
        name="rival_events_possible",
    ),
)

# Steps that wait for an event. The token shows whether the step still waits.
waits = Table(
    "rival_waits",
    metadata,
    Column("run_id", Name, primary_key=True),
    Column("path", Name, primary_key=True),
    Column("topic", Name, primary_key=True),
    Column("key", Name),
    # The payload must hold this.
    Column("filter", Filter),
    Column("token", Integer, nullable=False),
    Column("created_at", Timestamp, nullable=False),
)

# Deliveries of events to steps. An event is delivered to each run once.
deliveries = Table(
    "rival_deliveries",
    metadata,
    Column("event_id", Name, primary_key=True),
    Column("run_id", Name, primary_key=True),
    Column("path", Name, nullable=False),
    Column("at", Timestamp, nullable=False),
)

Index("rival_events_ring", events.c.ring_at, postgresql_where=text("ring_at IS NOT NULL"))
Index("rival_events_open", events.c.topic, events.c.created_at, postgresql_where=text("status <> 'consumed'"))
# Of one topic: how many are kept; and those of a key, kept or on their way, in their order.
Index(
    "rival_events_by_key",
    events.c.topic,
    events.c.status,
    events.c.key,
    events.c.created_at,
    events.c.id,
    postgresql_where=text("status <> 'consumed'"),
)
# The list of all events, the newest first, and those of one topic.
Index("rival_events_recent", events.c.created_at, events.c.id)
Index("rival_events_expiry", events.c.expires_at)
Index("rival_waits_topic", waits.c.topic, waits.c.key, waits.c.created_at)
Index("rival_deliveries_run", deliveries.c.run_id)
