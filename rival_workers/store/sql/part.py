"""The base of every part of the store: the database, and the options that all parts share. It also releases slots of
limits, and passes granted tickets to the process that publishes them after the commit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sqlalchemy import Connection

from rival_client.db.database import Database
from rival_client.model.payload import DEFAULT_LIMIT
from rival_client.model.starts.queues import ServedQueues
from rival_client.sql.gates import leave
from rival_client.sql.grants import Grant
from rival_workers.store.database_clock import DatabaseClock


class StorePart:
    #: Publishes the messages of granted tickets. None: the keepers publish them.
    on_grants: Callable[[Sequence[Grant]], None] | None = None

    def __init__(
        self,
        database: Database,
        *,
        ring_grace: float = 10.0,
        near: float = 30.0,
        max_payload: int = DEFAULT_LIMIT,
        served: ServedQueues | None = None,
    ) -> None:
        """`served`: the queues of the worker, which claims no step of another queue."""
        self.database, self.served = database, served or ServedQueues()
        self.ring_grace, self.near, self.max_payload = ring_grace, near, max_payload
        self.database_clock = DatabaseClock()

    def close(self) -> None:
        self.database.dispose()

    def _leave(self, connection: Connection, slots: Sequence[int]) -> Sequence[Grant]:
        """Release slots with the last statements of a transaction: see the lock order in `rival_client.sql.gates`."""
        return leave(connection, slots, self.ring_grace if self.on_grants else 0.0)

    def _publish_grants(self, grants: Sequence[Grant]) -> None:
        """Call after the commit."""
        if grants and self.on_grants is not None:
            self.on_grants(grants)
