"""Column types as earlier migrations created them. A migration must not change when the tables' own types do."""

from __future__ import annotations

from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.types import JSON

#: Payload columns until 0010: jsonb on Postgres, JSON (which SQLite treats as numeric) on SQLite.
JsonbPayload = JSON(none_as_null=True).with_variant(JSONB(none_as_null=True), "postgresql")
