"""Writes the audit log: actions of people in the dashboard that are not in the history of a run."""

from __future__ import annotations

import logging
from typing import Any

from rival_client.errors import RivalError
from rival_client.sql.audit import write_audit
from rival_workers.dashboard.roles import Identity
from rival_workers.dashboard.route import Call

_log = logging.getLogger(__name__)


def audit(call: Call, what: str, about: str, **detail: Any) -> None:
    """`about`: the kind of the object and its name, such as `schedule:nightly`."""
    with call.board.rival.database.transaction() as connection:
        write_audit(connection, call.by, what, about, **detail)


def audit_login(call: Call, who: Identity, way: str) -> None:
    """If the database is unreachable or read-only, the login succeeds all the same and is written to the log."""
    try:
        with call.board.rival.database.transaction() as connection:
            write_audit(connection, who.by, "log_in", f"user:{who.name}", way=way, role=who.role, address=call.address)
    except RivalError as error:
        _log.warning("%s has logged in by %s from %s (not in the audit: %s)", who.by, way, call.address, error)
