"""Orphans, in portable SQL: children whose parent has ended or was rewound are cancelled, each on its own."""

from __future__ import annotations

from rival_client.db.database import Database
from rival_client.errors import RunNotFound
from rival_client.sql import orphans as orphan_statements
from rival_client.sql import runs as run_statements


class OrphansSql:
    database: Database

    def orphans(self, limit: int, after: str = "") -> list[tuple[str, str]]:
        """(run id, on whose behalf) of children that are still to be cancelled, in the order of their ids."""
        with self.database.autocommit() as connection:
            return orphan_statements.list_orphans(connection, limit, after)

    def orphans_of(self, run_id: str, limit: int) -> list[tuple[str, str]]:
        with self.database.autocommit() as connection:
            return orphan_statements.orphans_of(connection, run_id, limit)

    def cancel_orphan(self, run_id: str, by: str) -> bool:
        """False: it had ended already. No run waits for it, so none is woken."""
        with self.database.transaction() as connection:
            try:
                return run_statements.cancel_run(connection, run_id, by)
            except RunNotFound:
                orphan_statements.delete_orphan(connection, run_id)
                return False
