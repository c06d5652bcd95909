"""Records in the audit log what a person did in the dashboard that belongs to no history of a run."""

from __future__ import annotations

from typing import Any

from rival_client.sql.audit import write_audit
from rival_workers.dashboard.route import Call


def audit(call: Call, what: str, about: str, **detail: Any) -> None:
    """`about`: the kind of the object and its name, such as `schedule:nightly`."""
    with call.board.rival.database.transaction() as connection:
        write_audit(connection, call.by, what, about, **detail)
