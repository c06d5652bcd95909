"""Checkpoints that several flows record at the same time: one statement and one commit for all. The statement is in
`groups.sql`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rival_client.db.prepared import PreparedPool
from rival_client.db.prepared_statement import GroupValue
from rival_client.errors import DatabaseBusy, DatabaseRefused
from rival_client.model.payload import Json, serialise
from rival_client.sql.history import as_json
from rival_workers.engine.replay import CheckpointWrite
from rival_workers.store.claim_records import Claim
from rival_workers.store.group_commits import ALONE, Alone
from rival_workers.store.postgres.statements import Portable, load_statements

RECORD_CHECKPOINTS = load_statements("groups.sql")["rival_record_checkpoints"]

#: When a checkpoint has ended. ALONE, PORTABLE: it is not recorded yet, and another path does so.
Recorded = float | Alone | Portable | None


@dataclass(frozen=True)
class RecordCall:
    claim: Claim
    write: CheckpointWrite
    state: Json | None

    @property
    def can_join(self) -> bool:
        """A new checkpoint that has ended, as most have."""
        return self.write.ref.found is None and self.write.delay is None


def checkpoint_row(write: CheckpointWrite, state: Json | None) -> dict[str, Any]:
    ref = write.ref
    return {
        "path": ref.path,
        "kind": ref.kind,
        "number": ref.number,
        "begun_after": ref.begun_after,
        "end_order": write.end_order,
        "status": write.status,
        "result": write.result,
        "error": write.error,
        "attempts": write.attempts,
        "what": write.what,
        "detail": as_json({**write.detail, "state": state}),
    }


def record_checkpoints(groups: PreparedPool, calls: Sequence[RecordCall]) -> list[Recorded]:
    """Only calls that can join. ALONE: its row does not fit, or nothing was committed."""
    # Rows are locked in this order.
    order = sorted(range(len(calls)), key=lambda number: calls[number].claim.where)
    recorded: list[Recorded] = [ALONE] * len(calls)
    try:
        [rows] = groups.fetch_groups([(RECORD_CHECKPOINTS, _columns([calls[number] for number in order]))])
    except (DatabaseBusy, DatabaseRefused):
        return recorded
    for row in rows:
        recorded[order[int(row[0] or 0) - 1]] = float(row[1] or 0.0)
    return recorded


def _columns(calls: Sequence[RecordCall]) -> dict[str, GroupValue]:
    rows = [checkpoint_row(one.write, one.state) for one in calls]
    return {
        "run_ids": [one.claim.run_id for one in calls],
        "flows": [one.claim.path for one in calls],
        "tokens": [one.claim.token for one in calls],
        "states": [one.state for one in calls],
        "errors": [None if one.write.error is None else serialise(one.write.error) for one in calls],
        **{column: [row[name] for row in rows] for column, name in _OF_ROWS.items()},
    }


_OF_ROWS = {
    "paths": "path",
    "kinds": "kind",
    "numbers": "number",
    "begun_afters": "begun_after",
    "end_orders": "end_order",
    "statuses": "status",
    "results": "result",
    "attempts": "attempts",
    "whats": "what",
    "details": "detail",
}
