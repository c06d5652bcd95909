"""The whole store in portable SQL, the same on Postgres and SQLite. `PostgresStore` is quicker where it is hot."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from inspect import isfunction
from typing import Any, TypeVar

from sqlalchemy.dialects import postgresql, sqlite

from rival_client.db.database import Database
from rival_client.db.database_errors import repeat_conflicts
from rival_client.db.tables import now, workflows
from rival_client.model.payload import DEFAULT_LIMIT
from rival_client.model.records import LogEntry, WorkflowInfo
from rival_client.sql.history import record
from rival_client.sql.workflows import workflow_version
from rival_workers.engine.plan import Plan
from rival_workers.store.sql import logs
from rival_workers.store.sql.events import EventsSql
from rival_workers.store.sql.external_steps import ExternalStepsSql
from rival_workers.store.sql.flow_commits import FlowCommitsSql
from rival_workers.store.sql.flows import FlowsSql
from rival_workers.store.sql.maintenance import MaintenanceSql
from rival_workers.store.sql.operator import OperatorSql
from rival_workers.store.sql.orphans import OrphansSql
from rival_workers.store.sql.retention import RetentionSql
from rival_workers.store.sql.revokes import RevokesSql
from rival_workers.store.sql.schedules import SchedulesSql
from rival_workers.store.sql.step_transitions import StepTransitionsSql

AnyStore = TypeVar("AnyStore")


def repeating_conflicts(store: type[AnyStore]) -> type[AnyStore]:
    """Each public method is one operation in one transaction: repeat it when it lost against another transaction."""
    for name in dir(store):
        method = getattr(store, name)
        if not name.startswith("_") and isfunction(method):
            setattr(store, name, _repeated(method))
    return store


def _repeated(method: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(method)
    def operation(*args: Any, **kwargs: Any) -> Any:
        return repeat_conflicts(lambda: method(*args, **kwargs))

    return operation


@repeating_conflicts
class SqlStore(
    StepTransitionsSql,
    MaintenanceSql,
    RetentionSql,
    OrphansSql,
    EventsSql,
    FlowsSql,
    FlowCommitsSql,
    ExternalStepsSql,
    OperatorSql,
    SchedulesSql,
    RevokesSql,
):
    def __init__(
        self, database: Database, *, ring_grace: float = 10.0, near: float = 30.0, max_payload: int = DEFAULT_LIMIT
    ) -> None:
        self.database = database
        self.ring_grace, self.near, self.max_payload = ring_grace, near, max_payload

    def close(self) -> None:
        self.database.dispose()

    # -- definitions --------------------------------------------------------------------------------------

    def register_workflow(
        self, name: str, plan: Plan, input_schema: dict[str, Any] | None, description: str | None,
        retention: float | None = None,
    ) -> None:  # fmt: skip
        """Store the version once; the version registered last is the one that new runs take."""
        dialect: Any = postgresql if self.database.is_postgres else sqlite
        statement = dialect.insert(workflows).values(
            name=name, version=plan.version, plan=plan.model_dump(mode="json"), input_schema=input_schema,
            description=description, retention=retention, registered_at=now(), activated_at=now(),
        )  # fmt: skip
        changing = ("input_schema", "description", "retention", "activated_at")
        changes = {name: statement.excluded[name] for name in changing}
        with self.database.transaction() as connection:
            connection.execute(statement.on_conflict_do_update(index_elements=["name", "version"], set_=changes))

    def load_workflow(self, name: str, version: str) -> WorkflowInfo | None:
        with self.database.autocommit() as connection:
            return workflow_version(connection, name, version)

    # -- logs and history ---------------------------------------------------------------------------------

    def append_logs(self, run_id: str, entries: Sequence[LogEntry], again: bool = False) -> None:
        """In one go, in order. `again`: an earlier try of the same may have landed."""
        opened = self.database.autocommit if self.database.is_postgres else self.database.transaction
        with opened() as connection:
            left = logs.without_stored(connection, run_id, entries) if again else entries
            if left:
                logs.append(connection, run_id, left)

    def record(self, run_id: str, path: str | None, what: str, by: str | None, **detail: Any) -> None:
        with self.database.transaction() as connection:
            record(connection, run_id, path, what, by=by, **detail)
