"""The fast path of events: delivery to one step that waits for the event's key. The statements are in `events.sql`."""

from __future__ import annotations

from dataclasses import dataclass

from rival_client.db.prepared import Row, Value
from rival_client.model.kinds import WAIT
from rival_client.model.payload import load
from rival_client.sql.wake import ReadyStep
from rival_workers.store.interface import ClaimBy, Claimed, Delivered
from rival_workers.store.postgres.statements import FastPath, load_statements

STATEMENTS = load_statements("events.sql")


@dataclass(frozen=True)
class DeliverCall:
    event_id: str
    claim: ClaimBy | None
    grace: float


def _deliver(call: DeliverCall) -> dict[str, Value]:
    executor = None if call.claim is None else call.claim.executor
    return {"event_id": call.event_id, "grace": call.grace, "executor": executor, "workflows": _array(call.claim)}


def _delivered(call: DeliverCall, row: Row) -> Delivered:
    run_id, path, token, workflow, version, claims = (text or "" for text in row[:6])
    if claims != "t":
        return Delivered((ReadyStep(run_id, path, int(token), workflow, version),))
    timeout_token, attempts, lost = (int(text or 0) for text in row[6:9])
    claimed = Claimed(run_id, path, int(token), timeout_token, attempts, lost, load(row[9]), WAIT, load(row[10]))
    return Delivered((), claimed, workflow, version)


def _array(claim: ClaimBy | None) -> str:
    """An array literal of Postgres. Names are quoted as in JSON."""
    names = () if claim is None else (f"{name}@{version}" for name, version in claim.workflows)
    return "{" + ",".join('"' + name.replace("\\", "\\\\").replace('"', '\\"') + '"' for name in names) + "}"


DELIVER_EVENT: FastPath[DeliverCall, Delivered] = FastPath(
    shortcuts="deliver_event",
    statement=STATEMENTS["rival_deliver_event"],
    applies=lambda call: True,
    because="The event has a key and is for one run, and the oldest wait that fits is for this key only.",
    values=_deliver,
    result=_delivered,
    lock=STATEMENTS["rival_lock_event"],
)
