"""Idempotency keys of steps."""

from __future__ import annotations

from sqlalchemy import CheckConstraint, Column, Float, Identity, Index, Table, Text, text

from rival_client.db.schema import metadata
from rival_client.db.types import BigId, Name, Payload, Timestamp

# A step that waits for the owner of a key has a ticket whose gate is the negative id of the key's row. So the row stays
# when its owner does not end it: the next step with the key becomes the owner, and the others wait for that.
keys = Table(
    "rival_idempotency_keys",
    metadata,
    Column("id", BigId, Identity(always=True), primary_key=True),
    # Of workflow, step and key: see `KeyName`. The key's text may be longer than an entry of an index.
    Column("digest", Name, nullable=False),
    Column("key", Text, nullable=False),
    # Null: the key counts for all workflows, or for all steps of the workflow.
    Column("workflow", Name),
    Column("step", Name),
    # The step that owns the key, or has ended it; null: none does. `holder`: the row of the step, which is that of its
    # flow, if it has one.
    Column("run_id", Name),
    Column("path", Name),
    Column("holder", Name),
    # Of the input of the owner.
    Column("fingerprint", Name),
    # Seconds for which the result is kept.
    Column("ttl", Float, nullable=False),
    Column("result", Payload),
    Column("created_at", Timestamp, nullable=False),
    Column("completed_at", Timestamp),
    # When the row may be deleted. Null: a step owns it and has not ended.
    Column("expires_at", Timestamp),
    CheckConstraint(
        "(run_id IS NULL) = (path IS NULL) AND (run_id IS NULL) = (holder IS NULL) "
        "AND (expires_at IS NULL) = (run_id IS NOT NULL AND completed_at IS NULL)",
        name="rival_idempotency_keys_possible",
    ),
    Index("rival_idempotency_keys_digest", "digest", unique=True),
)

OPEN = text("expires_at IS NULL")
_ENDED = text("expires_at IS NOT NULL")
Index("rival_idempotency_keys_owner", keys.c.run_id, keys.c.path, postgresql_where=OPEN, sqlite_where=OPEN)
Index("rival_idempotency_keys_expiry", keys.c.expires_at, postgresql_where=_ENDED, sqlite_where=_ENDED)
Index("rival_idempotency_keys_recent", keys.c.created_at, keys.c.id)
