"""Routes of idempotency keys of steps: which steps have them, and dropping one. Their results are on the pages of runs,
where secrets are hidden.
"""

from __future__ import annotations

from typing import Any

from pydantic import Field

from rival_client.model.limits.idempotency import MAX_KEY
from rival_client.model.limits.idempotency_records import IdempotencyRecord
from rival_client.sql.audit import write_audit
from rival_workers.dashboard.commands import call_text, commands, shell_text
from rival_workers.dashboard.route import Call, Confirmed, Form, Route
from rival_workers.dashboard.values import fields, moments


class KeysQuery(Form):
    workflow: str | None = None
    limit: int = Field(default=50, ge=1, le=1000)


class KeyQuery(Form):
    key: str = Field(min_length=1, max_length=MAX_KEY)
    workflow: str | None = None
    step: str | None = None


class KeyOrder(Confirmed):
    key: str = Field(min_length=1, max_length=MAX_KEY)
    workflow: str | None = None
    step: str | None = None


def keys(call: Call) -> dict[str, Any]:
    found = call.board.reader.idempotency_keys(workflow=call.query.workflow, limit=call.query.limit)
    return {"items": [_view(one) for one in found]}


def one_key(call: Call) -> dict[str, Any]:
    given: KeyQuery = call.query
    found = call.board.reader.idempotency_key(given.key, workflow=given.workflow, step=given.step)
    return {"item": None if found is None else _view(found)}


def _view(one: IdempotencyRecord) -> dict[str, Any]:
    times = moments(one, "created_at completed_at expires_at")
    return {**fields(one, "key workflow step status waiting"), "run": one.run_id, "path": one.path, **times}


def drop_key(call: Call) -> dict[str, Any]:
    """`dropped` is False if the key has no result."""
    given: KeyOrder = call.body
    whose = {"workflow": given.workflow, "step": given.step}
    shell, python = shell_text("key drop", given.key, **whose), call_text("drop_idempotency_key", given.key, **whose)
    body = {"key": given.key, **{name: value for name, value in whose.items() if value is not None}}
    texts = commands(call.base, "idempotency-keys/drop", shell, python, body)
    if given.dry_run:
        return {"dropped": False, "commands": texts}
    dropped = call.board.rival.drop_idempotency_key(given.key, **whose, by=call.by)
    with call.board.rival.database.transaction() as connection:
        write_audit(connection, call.by, "drop_idempotency_key", f"key:{given.key}")
    return {"dropped": dropped, "commands": texts}


_KEYS = "/idempotency-keys"
ROUTES = (
    Route("GET", _KEYS, "viewer", keys, "List idempotency keys", query=KeysQuery, does="key ls"),
    Route("GET", f"{_KEYS}/one", "viewer", one_key, "Read an idempotency key", query=KeyQuery, does="key show"),
    Route("POST", f"{_KEYS}/drop", "operator", drop_key, "Drop an idempotency key", body=KeyOrder, does="key drop"),
)
