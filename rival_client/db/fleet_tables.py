"""Tables that belong to no run: the executors of the fleet, its rules, and the schedules that start runs."""

from __future__ import annotations

import datetime as dt

from sqlalchemy import Boolean, CheckConstraint, Column, Identity, Index, Integer, Table, Text

from rival_client.db.schema import metadata
from rival_client.db.types import BigId, Name, Payload, Timestamp

executors = Table(
    "rival_executors",
    metadata,
    Column("id", Name, primary_key=True),
    Column("host", Text, nullable=False),
    Column("pid", Integer, nullable=False),
    Column("worker", Text, nullable=False),
    Column("started_at", Timestamp, nullable=False),
    Column("beat_at", Timestamp, nullable=False),
    Column("expires_at", Timestamp, nullable=False),
    # A problem that the executor has found in itself: a blocked event loop.
    Column("problem", Text),
    # The queues that it serves, how many attempts it can run at once, how many it runs, and the workflows that it has
    # (name -> versions). Null: it has not reported them.
    Column("queues", Payload),
    Column("slots", Integer),
    Column("busy", Integer),
    Column("workflows", Payload),
)

# Rules that operators have set for the whole fleet; the newest counts first.
rules = Table(
    "rival_rules",
    metadata,
    Column("id", BigId, Identity(always=True), primary_key=True),
    Column("match", Payload, nullable=False),
    Column("options", Payload, nullable=False),
    Column("reason", Text),
    Column("author", Text),
    Column("created_at", Timestamp, nullable=False),
    Column("expires_at", Timestamp),
)

# One row: how often the rules have changed. Every process compares it with what it has read.
rulebook = Table(
    "rival_rulebook",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("version", Integer, nullable=False, server_default="0"),
)

CATCH_UPS = ("none", "last", "all")
PAUSED_UNTIL = dt.datetime(9999, 1, 1, tzinfo=dt.UTC)

# Schedules, which start runs by the clock.
schedules = Table(
    "rival_schedules",
    metadata,
    Column("name", Name, primary_key=True),
    Column("workflow", Name, nullable=False),
    # Either a cron expression in a time zone, or every so many seconds.
    Column("cron", Text),
    Column("every", Integer),
    Column("timezone", Text, nullable=False),
    Column("catch_up", Name, nullable=False),
    Column("input", Payload),
    # Options of the start of its runs, as `schedule` was given them.
    Column("options", Payload),
    # It is part of the workflow's definition, which also removes it.
    Column("own", Boolean, nullable=False),
    # Every tick before this has been handled.
    Column("next_at", Timestamp, nullable=False),
    Column("last_at", Timestamp),
    # Why it could not be fired.
    Column("error", Text),
    Column("created_at", Timestamp, nullable=False),
    # While it is paused its next tick is `PAUSED_UNTIL`, so that no keeper finds it due.
    Column("paused_at", Timestamp),
    Column("paused_by", Text),
    CheckConstraint(
        f"(cron IS NULL) <> (every IS NULL) AND catch_up IN {CATCH_UPS!r}", name="rival_schedules_possible"
    ),
)


Index("rival_schedules_next", schedules.c.next_at)
