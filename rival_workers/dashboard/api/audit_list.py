"""The route of the audit log: actions of people that belong to no run."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from rival_client.sql.audit import read_audit
from rival_workers.dashboard.route import Call, Form, Route
from rival_workers.dashboard.values import moment


class AuditQuery(Form):
    before: int | None = Field(default=None, ge=0, le=2**62)
    limit: int = Field(default=100, ge=1, le=500)


def list_audit(call: Call) -> dict[str, Any]:
    with call.board.database.snapshot() as connection:
        found = read_audit(connection, before=call.query.before, limit=call.query.limit)
    items = [
        {"id": one.id, "at": moment(one.at), "by": one.by, "what": one.what, "about": one.about, "detail": one.detail}
        for one in found
    ]
    return {"items": items, "next": found[-1].id if len(found) == call.query.limit else None}


ROUTES = (
    Route("GET", "/audit", "admin", list_audit, "List what people have done that belongs to no run", query=AuditQuery),
)
