"""Column types as the migrations create them. A migration must not change when the types of the live tables change."""

from __future__ import annotations

from sqlalchemy import DateTime, Float, Text
from sqlalchemy.dialects.postgresql import JSON as PostgresJson
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.types import JSON

#: Payload columns until 0010: jsonb on Postgres, JSON (which SQLite treats as numeric) on SQLite.
JsonbPayload = JSON(none_as_null=True).with_variant(JSONB(none_as_null=True), "postgresql")
#: Payload columns since 0010: json on Postgres, TEXT on SQLite.
TextJson = Text().with_variant(PostgresJson(none_as_null=True), "postgresql")
#: Names and ids: in byte order on Postgres.
Name = Text().with_variant(Text(collation="C"), "postgresql")
#: timestamptz on Postgres; seconds since the epoch on SQLite.
Timestamp = DateTime(timezone=True).with_variant(Float(), "sqlite")
