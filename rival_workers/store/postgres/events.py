"""Fast paths of events: delivery to one step that waits for the event's key, and of many events in a group. The
statements are in `events.sql` and `event_groups.sql`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rival_client.db.prepared_statement import GroupValue, Row, Value
from rival_client.model.kinds import WAIT
from rival_client.model.payload import load
from rival_client.sql.wake import ReadyStep
from rival_workers.store.claim_records import ClaimBy, Claimed, Delivered
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
        }

    @staticmethod
    def delivered(commit: DeliverEvent, row: Row) -> Delivered:
        return _delivered_by(row[1:])

    @staticmethod
    def flow_delivered(commit: DeliverEvent, row: Row) -> Delivered:
        run_id, path, token, workflow, version = (text or "" for text in row[1:6])
        return Delivered((ReadyStep(run_id, path, int(token), workflow, version, route_of(row[6], row[7])),))


class PostgresEvents(FastPaths, EventsSql):
    def deliver_event(self, event_id: str, claim: ClaimBy | None = None) -> Delivered:
        done = self._fast(DeliverCall(event_id, claim, self.ring_grace, self._queues), DELIVER_EVENT)
        return super().deliver_event(event_id, claim) if done is PORTABLE or done is None else done
