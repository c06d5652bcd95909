"""Tables of limits: what is allowed (limits), what is in use for one key (gates), and what waits for it (tickets).

A slot that is in use is not a row here: the row of the step, or of the run, that uses it names the gate (`slots`).
"""

from __future__ import annotations

from sqlalchemy import CheckConstraint, Column, Float, Identity, Index, Integer, SmallInteger, Table, Text, text

from rival_client.db.schema import metadata
from rival_client.db.types import BigId, Name, Timestamp

limits = Table(
    "rival_limits",
    metadata,
    Column("name", Name, primary_key=True),
    # How many at once; of a rate, how many in `per` seconds.
    Column("max", Integer, nullable=False),
    Column("per", Float),
    Column("burst", Integer, nullable=False, server_default="0"),
    # How many gates share the maximum of one key.
    Column("shards", SmallInteger, nullable=False, server_default="1"),
    # The maximum that the definition has, while an operator has set another one.
    Column("defined_max", Integer),
    Column("set_by", Text),
    Column("updated_at", Timestamp, nullable=False),
)

# One key of a limit. No index has the columns that each step changes, so that Postgres need not touch an index for it.
gates = Table(
    "rival_gates",
    metadata,
    Column("id", BigId, Identity(always=True), primary_key=True),
    Column("name", Name, nullable=False),
    Column("key", Name, nullable=False, server_default=""),
    Column("shard", SmallInteger, nullable=False, server_default="0"),
    Column("shards", SmallInteger, nullable=False, server_default="1"),
    # How many at once, and how many now: in running rows and in granted tickets. Of a rate: only granted tickets.
    Column("max", Integer, nullable=False),
    Column("used", Integer, nullable=False, server_default="0"),
    # Of a rate: seconds between two starts, how far ahead of that a start may be, and when the next one is due.
    Column("gap", Float),
    Column("slack", Float),
    Column("next_start", Float, nullable=False, server_default="0"),
    Column("touched_at", Timestamp, nullable=False),
    CheckConstraint("used >= 0 AND (gap IS NULL) = (slack IS NULL)", name="rival_gates_possible"),
    Index("rival_gates_key", "name", "key", "shard", unique=True),
    # A gate is updated by each step that it admits: room in the page lets Postgres do without touching an index.
    postgresql_with={"fillfactor": 50, "autovacuum_vacuum_scale_factor": 0, "autovacuum_vacuum_threshold": 500},
)

# A step, or with an empty path a run, that waits at a gate.
tickets = Table(
    "rival_tickets",
    metadata,
    Column("run_id", Name, primary_key=True),
    Column("path", Name, primary_key=True),
    # The token that the row has while it waits: a message with it starts the step once the ticket is granted.
    Column("token", Integer, nullable=False),
    Column("gate", BigId, nullable=False),
    # The order of the queue: time of arrival, moved back for groups that have many waiting, then by priority.
    Column("base", Float, nullable=False),
    Column("rank", Float, nullable=False),
    Column("fair_group", Name),
    # What its message says.
    Column("workflow", Name, nullable=False),
    Column("version", Name, nullable=False),
    Column("attempt", Integer, nullable=False, server_default="1"),
    Column("lost", Integer, nullable=False, server_default="0"),
    Column("queue", Name),
    Column("level", Integer, nullable=False, server_default="0"),
    # Since when it may start, with this slot.
    Column("granted_at", Timestamp),
    Column("slot", BigId),
    # Of a rate: not before this.
    Column("due_at", Timestamp),
    Column("ring_at", Timestamp),
    Column("rings", Integer, nullable=False, server_default="0"),
    Column("created_at", Timestamp, nullable=False),
    CheckConstraint("granted_at IS NOT NULL OR (slot IS NULL AND ring_at IS NULL)", name="rival_tickets_possible"),
    postgresql_with={"fillfactor": 70, "autovacuum_vacuum_scale_factor": 0.02},
)

_WAITING = text("granted_at IS NULL")
_GROUPED = text("granted_at IS NULL AND fair_group IS NOT NULL")
_HAS_RING_AT = text("ring_at IS NOT NULL")
_BY_RANK = (tickets.c.gate, tickets.c.rank, tickets.c.run_id, tickets.c.path)
Index("rival_tickets_waiting", *_BY_RANK, postgresql_where=_WAITING, sqlite_where=_WAITING)
Index(
    "rival_tickets_group",
    tickets.c.gate,
    tickets.c.fair_group,
    tickets.c.base,
    postgresql_where=_GROUPED,
    sqlite_where=_GROUPED,
)
Index("rival_tickets_ring", tickets.c.ring_at, postgresql_where=_HAS_RING_AT, sqlite_where=_HAS_RING_AT)
