"""Tables that only grow with a run: its history and the log lines of its steps."""

from __future__ import annotations

from sqlalchemy import Column, Identity, Index, Integer, Table, Text

from rival_client.db.schema import metadata
from rival_client.db.types import BigId, Name, Payload, Timestamp

history = Table(
    "rival_history",
    metadata,
    Column("id", BigId, Identity(always=True), primary_key=True),
    Column("run_id", Name, nullable=False),
    Column("path", Name),
    Column("what", Text, nullable=False),
    Column("detail", Payload),
    Column("at", Timestamp, nullable=False),
    # Who or what did it: an executor, an operator, another run, an event, the keeper.
    Column("actor", Text),
)

logs = Table(
    "rival_logs",
    metadata,
    Column("id", BigId, Identity(always=True), primary_key=True),
    Column("run_id", Name, nullable=False),
    Column("path", Name, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("level", Text, nullable=False),
    Column("message", Text, nullable=False),
    Column("fields", Payload),
    Column("at", Timestamp, nullable=False),
)

Index("rival_history_run", history.c.run_id, history.c.id)
Index("rival_logs_run", logs.c.run_id, logs.c.id)
