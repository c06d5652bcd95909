"""Column types as the migrations create them. A migration must not change when the types of the live tables change."""

from __future__ import annotations

from sqlalchemy import DateTime, Float
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.types import JSON

#: Payload columns until 0010: jsonb on Postgres, JSON (which SQLite treats as numeric) on SQLite.
JsonbPayload = JSON(none_as_null=True).with_variant(JSONB(none_as_null=True), "postgresql")
#: timestamptz on Postgres; seconds since the epoch on SQLite.
Timestamp = DateTime(timezone=True).with_variant(Float(), "sqlite")
