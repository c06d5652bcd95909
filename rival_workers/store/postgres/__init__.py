"""The store on Postgres: tries the fast path of an operation, and takes the portable path of `SqlStore` otherwise."""

from __future__ import annotations

from typing import Any

from rival_client.db.database import Database
from rival_client.db.prepared import PreparedPool
from rival_workers.store.postgres.claims import ASK_BREAKER, CLAIM_STEP, READ_ITEM, PostgresBreakers
from rival_workers.store.postgres.events import DELIVER_EVENT, PostgresEvents
from rival_workers.store.postgres.flows import (
    COMMIT_FLOW,
    CONTINUE_FLOW,
    READ_CHECKPOINTS,
    RECORD_CHECKPOINT,
    RECORD_CHECKPOINTS,
    PostgresFlows,
)
from rival_workers.store.postgres.groups import GROUP_SETTINGS, PostgresGroups
from rival_workers.store.postgres.limited_claims import LIMITED, PostgresLimits
from rival_workers.store.postgres.limited_finishes import FINISH_LIMITED, LOOK_AGAIN
from rival_workers.store.postgres.limited_groups import Contention
from rival_workers.store.postgres.statements import FastPath, array_of
from rival_workers.store.postgres.steps import BEGIN_RUN, FINISH_STEP
from rival_workers.store.sql_store import SqlStore

FAST_PATHS: tuple[FastPath[Any, Any], ...] = (
    BEGIN_RUN,
    CLAIM_STEP,
    READ_ITEM,
    ASK_BREAKER,
    *FINISH_STEP,
    READ_CHECKPOINTS,
    RECORD_CHECKPOINT,
    RECORD_CHECKPOINTS,
    *COMMIT_FLOW,
    *CONTINUE_FLOW,
    DELIVER_EVENT,
    *LIMITED,
    *FINISH_LIMITED,
    LOOK_AGAIN,
)


class PostgresStore(PostgresLimits, PostgresGroups, PostgresFlows, PostgresEvents, PostgresBreakers, SqlStore):
    def __init__(self, database: Database, **options: Any) -> None:
        super().__init__(database, **options)
        self._prepared = PreparedPool(database.url)
        self._groups = PreparedPool(database.url, GROUP_SETTINGS)
        self._queues = array_of(self.served.names)
        self._found_full, self._full_limits, self._contention = {}, set(), Contention()

    def close(self) -> None:
        self._prepared.close()
        self._groups.close()
        super().close()
