"""All tables, once, for Postgres and SQLite: for what handles the whole schema. What may be in them is written as
constraints, not hoped for. Modules that use a table import it from the module that defines it.
"""

from __future__ import annotations

from rival_client.db import (
    event_tables,
    failure_tables,
    fleet_tables,
    idempotency_tables,
    limit_tables,
    log_tables,
    operator_tables,
    run_tables,
)
from rival_client.db.schema import metadata

__all__ = [
    "event_tables",
    "failure_tables",
    "fleet_tables",
    "idempotency_tables",
    "limit_tables",
    "log_tables",
    "metadata",
    "operator_tables",
    "run_tables",
]
