"""The audit log: actions of people that belong to no run. Append-only."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, insert, select

from rival_client.db.operator_tables import audit
from rival_client.db.types import now


@dataclass(frozen=True)
class AuditEntry:
    id: int
    at: dt.datetime
    by: str
    what: str
    #: What it was done to: `schedule:nightly`.
    about: str | None
    detail: dict[str, Any]


def write_audit(connection: Connection, by: str, what: str, about: str | None = None, **detail: Any) -> None:
    connection.execute(insert(audit).values(at=now(), actor=by, what=what, about=about, detail=detail))


def read_audit(connection: Connection, *, before: int | None = None, limit: int = 100) -> list[AuditEntry]:
    """The newest first."""
    statement = select(audit).order_by(audit.c.id.desc()).limit(limit)
    if before is not None:
        statement = statement.where(audit.c.id < before)
    rows = connection.execute(statement)
    return [AuditEntry(row.id, row.at, row.actor, row.what, row.about, row.detail or {}) for row in rows]
