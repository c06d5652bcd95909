"""The statements that read idempotency keys: the keys of a workflow, and the key that a step waits for."""

from __future__ import annotations

from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, and_, func, select, true

from rival_client.db.idempotency_tables import keys
from rival_client.db.limit_tables import tickets
from rival_client.db.types import clock
from rival_client.model.limits.idempotency_records import IdempotencyRecord, KeyName, KeyStatus
from rival_client.model.why.why_facts import KeyFacts

WAITS = and_(tickets.c.gate == -keys.c.id, tickets.c.granted_at.is_(None))


def list_keys(connection: Connection, limit: int, which: ColumnElement[bool] | None = None) -> list[IdempotencyRecord]:
    """The newest first. A key that has expired is not among them."""
    waiting = select(func.count()).where(WAITS).scalar_subquery().label("waiting")
    is_kept = keys.c.expires_at.is_(None) | (keys.c.expires_at > clock()) | keys.c.run_id.is_(None)
    wanted = select(keys, waiting).where(is_kept, true() if which is None else which)
    found = connection.execute(wanted.order_by(keys.c.created_at.desc(), keys.c.id.desc()).limit(limit))
    return [_record(row) for row in found]


def _record(row: Row[Any]) -> IdempotencyRecord:
    status: KeyStatus = "free" if row.run_id is None else "running" if row.completed_at is None else "completed"
    named = (row.key, row.workflow, row.step, status, row.run_id, row.path, row.result, row.waiting)
    return IdempotencyRecord(*named, row.created_at, row.completed_at, row.expires_at)


def keys_of_workflow(workflow: str) -> ColumnElement[bool]:
    return keys.c.workflow == workflow


def is_named(name: KeyName) -> ColumnElement[bool]:
    return keys.c.digest == name.digest


def waited_for(connection: Connection, run_id: str, most: int) -> dict[str, KeyFacts]:
    """Path -> the key that a step waits for."""
    owner = (keys.c.key, keys.c.run_id, keys.c.path.label("owner"))
    its = select(tickets.c.path, *owner, tickets.c.created_at, tickets.c.granted_at.is_not(None), tickets.c.ring_at)
    joined = its.join(keys, keys.c.id == -tickets.c.gate).where(tickets.c.run_id == run_id, tickets.c.gate < 0)
    return {row.path: KeyFacts(*tuple(row)[1:]) for row in connection.execute(joined.limit(most))}
