"""Fast paths of events: delivery to one step that waits for the event's key, and of many events in a group. The
statements are in `events.sql` and `event_groups.sql`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from rival_client.db.prepared_statement import GroupValue, Row, Value
from rival_client.model import statuses
from rival_client.model.kinds import FLOW, WAIT
from rival_client.model.payload import load
from rival_client.sql.wake import ReadyStep
from rival_workers.engine.replay import Checkpoint
from rival_workers.store.claim_records import ClaimBy, Claimed, Delivered
from rival_workers.store.flow_records import StoredFlow
from rival_workers.store.group_commits import DeliverEvent
from rival_workers.store.postgres.claims import facts_of, route_of
from rival_workers.store.postgres.statements import PORTABLE, FastPath, FastPaths, array_of, load_statements
from rival_workers.store.sql.events import EventsSql

STATEMENTS = load_statements("events.sql")
_IN_GROUPS = load_statements("event_groups.sql")
LOCK_EVENTS, DELIVER_EVENTS = _IN_GROUPS["rival_lock_events"], _IN_GROUPS["rival_deliver_events"]
DELIVER_TO_FLOWS = _IN_GROUPS["rival_deliver_events_to_flows"]


@dataclass(frozen=True)
class DeliverCall:
    event_id: str
    claim: ClaimBy | None
    grace: float
    queues: str


def _deliver(call: DeliverCall) -> dict[str, Value]:
    executor = None if call.claim is None else call.claim.executor
    own: dict[str, Value] = {"event_id": call.event_id, "grace": call.grace, "executor": executor}
    return {**own, "workflows": _known_workflows(call.claim), "queues": call.queues}


def _known_workflows(claim: ClaimBy | None) -> str:
    """The workflows as a Postgres array."""
    return array_of(() if claim is None else (f"{name}@{version}" for name, version in claim.workflows))


def _delivered_by(row: Row) -> Delivered:
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


def _known_flows(claim: ClaimBy | None) -> dict[str, str]:
    """The flows and their time limits as Postgres arrays."""
    flows = {} if claim is None else claim.flows
    limits = ",".join("NULL" if limit is None else str(limit) for limit in flows.values())
    return {"flows": array_of(flows), "timeouts": "{" + limits + "}"}


def _checkpoints(stored: str | None, ended: Row) -> list[Checkpoint]:
    """The checkpoints of a flow before the event, with the one that has ended by it: its path, the event, its order
    and when."""
    path, event, order, at = ended
    by_event = {
        "status": statuses.COMPLETED,
        "result": load(event),
        "error": None,
        "end_order": None if order is None else int(order),
        "ended_at": float(at or 0.0),
    }
    found = (Checkpoint(*columns) for columns in load(stored) or ())
    return [replace(one, **by_event) if one.path == path else one for one in found]


DELIVER_EVENT: FastPath[DeliverCall, Delivered] = FastPath(
    shortcuts="deliver_event",
    statement=STATEMENTS["rival_deliver_event"],
    applies=lambda call: True,
    because="The event has a key and is for one run, and the oldest matching wait is for this key only.",
    values=_deliver,
    result=lambda call, row: _delivered_by(row),
    lock=STATEMENTS["rival_lock_event"],
)


@dataclass(frozen=True)
class Deliverer:
    """The executor that delivers a group of events and claims the steps that they wake, if it serves their queue."""

    claim: ClaimBy | None
    grace: float
    #: The queues of the executor, as a Postgres array.
    queues: str

    def columns(self, commits: Sequence[DeliverEvent]) -> dict[str, GroupValue]:
        return {
            "event_ids": [commit.event_id for commit in commits],
            "grace": self.grace,
            "queues": self.queues,
            "workflows": _known_workflows(self.claim),
            **_known_flows(self.claim),
        }

    @staticmethod
    def delivered(commit: DeliverEvent, row: Row) -> Delivered:
        return _delivered_by(row[1:])

    @staticmethod
    def flow_delivered(commit: DeliverEvent, row: Row) -> Delivered:
        run_id, path, token, workflow, version = (text or "" for text in row[1:6])
        route = route_of(row[6], row[7])
        if row[8] != "t":
            return Delivered((ReadyStep(run_id, path, int(token), workflow, version, route),))
        timeout_token, attempts, lost = (int(text or 0) for text in row[9:12])
        values = (timeout_token, attempts, lost, load(row[12]), FLOW, load(row[13]))
        facts, left = facts_of(row[14], row[15], row[16], row[17], None), None if row[18] is None else float(row[18])
        stored = StoredFlow(_checkpoints(row[20], row[21:]), load(row[19]))
        claimed = Claimed(run_id, path, int(token), *values, facts, route, left, stored=stored)
        return Delivered((), claimed, workflow, version)


class PostgresEvents(FastPaths, EventsSql):
    def deliver_event(self, event_id: str, claim: ClaimBy | None = None) -> Delivered:
        done = self._fast(DeliverCall(event_id, claim, self.ring_grace, self._queues), DELIVER_EVENT)
        return super().deliver_event(event_id, claim) if done is PORTABLE or done is None else done
