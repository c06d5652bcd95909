"""The fast path of events: delivery to one step that waits for the event's key. The statements are in `events.sql`."""

from __future__ import annotations

from dataclasses import dataclass

from rival_client.db.prepared_statement import Row, Value
from rival_client.model.kinds import WAIT
from rival_client.model.payload import load
from rival_client.sql.wake import ReadyStep
from rival_workers.store.claim_records import ClaimBy, Claimed, Delivered
from rival_workers.store.postgres.claims import facts_of, route_of
from rival_workers.store.postgres.statements import PORTABLE, FastPath, FastPaths, array_of, load_statements
from rival_workers.store.sql.events import EventsSql

STATEMENTS = load_statements("events.sql")


@dataclass(frozen=True)
class DeliverCall:
    event_id: str
    claim: ClaimBy | None
    grace: float
    queues: str


def _deliver(call: DeliverCall) -> dict[str, Value]:
    executor = None if call.claim is None else call.claim.executor
    workflows = () if call.claim is None else (f"{name}@{version}" for name, version in call.claim.workflows)
    own: dict[str, Value] = {"event_id": call.event_id, "grace": call.grace, "executor": executor}
    return {**own, "workflows": array_of(workflows), "queues": call.queues}


def _delivered(call: DeliverCall, row: Row) -> Delivered:
    run_id, path, token, workflow, version, claims = (text or "" for text in row[:6])
    route = route_of(row[15], row[16])
    if claims != "t":
        return Delivered((ReadyStep(run_id, path, int(token), workflow, version, route),))
    timeout_token, attempts, lost = (int(text or 0) for text in row[6:9])
    values, facts = (
        (timeout_token, attempts, lost, load(row[9]), WAIT, load(row[10])),
        facts_of(row[11], row[12], row[13], row[14], row[17]),
    )
    claimed = Claimed(run_id, path, int(token), *values, facts, route)
    return Delivered((), claimed, workflow, version)


DELIVER_EVENT: FastPath[DeliverCall, Delivered] = FastPath(
    shortcuts="deliver_event",
    statement=STATEMENTS["rival_deliver_event"],
    applies=lambda call: True,
    because="The event has a key and is for one run, and the oldest wait that fits is for this key only.",
    values=_deliver,
    result=_delivered,
    lock=STATEMENTS["rival_lock_event"],
)


class PostgresEvents(FastPaths, EventsSql):
    def deliver_event(self, event_id: str, claim: ClaimBy | None = None) -> Delivered:
        done = self._fast(DeliverCall(event_id, claim, self.ring_grace, self._queues), DELIVER_EVENT)
        return super().deliver_event(event_id, claim) if done is PORTABLE or done is None else done
