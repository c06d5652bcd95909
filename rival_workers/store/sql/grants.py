"""Gives back slots of limits, and hands the granted tickets to the process that publishes them after the commit."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sqlalchemy import Connection

from rival_client.db.database import Database
from rival_client.sql.gates import Grant, leave


class GrantsSql:
    database: Database
    ring_grace: float
    #: Publishes the messages of granted tickets. None: the keepers do.
    on_grants: Callable[[Sequence[Grant]], None] | None = None

    def _leave(self, connection: Connection, slots: Sequence[int]) -> Sequence[Grant]:
        """The last statements of a transaction: see the lock order in `rival_client.sql.gates`."""
        return leave(connection, slots, self.ring_grace if self.on_grants else 0.0)

    def _publish_grants(self, grants: Sequence[Grant]) -> None:
        """After the commit."""
        if grants and self.on_grants is not None:
            self.on_grants(grants)
