"""All tables, the same for Postgres and SQLite, for code that handles the whole schema. Constraints refuse impossible
rows.

Modules that use a table import it from the module that defines it.
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
