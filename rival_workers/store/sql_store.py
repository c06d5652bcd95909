"""The store in portable SQL, the same on Postgres and SQLite. `PostgresStore` adds fast paths."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, delete, func, insert, select, text, update

from rival_client.db.conflict_retries import repeating_conflicts
from rival_client.db.log_tables import logs
from rival_client.db.run_tables import earlier_policies, runs, workflows
from rival_client.db.types import clock, now
from rival_client.model.limits.limits import Limit
from rival_client.model.payload import serialise
from rival_client.model.run_entries import LogEntry
from rival_client.model.starts.priorities import Priority, level_of
from rival_client.model.workflow_info import WorkflowInfo
from rival_client.sql.history import record
from rival_client.sql.limit_rows import dialect_of, register_limit
from rival_client.sql.workflows import workflow_version
from rival_workers.engine.plan import Plan
from rival_workers.engine.policies import NO_POLICIES, Policies, PolicyDocument
from rival_workers.engine.step_limits import limits_of
from rival_workers.store.group_commits import GroupCommits
from rival_workers.store.sql.breakers import BreakersSql
from rival_workers.store.sql.claims import ClaimsSql
from rival_workers.store.sql.events import EventsSql
from rival_workers.store.sql.executors import ExecutorsSql
from rival_workers.store.sql.external_steps import ExternalStepsSql
from rival_workers.store.sql.flow_commits import FlowCommitsSql
from rival_workers.store.sql.flows import FlowsSql
from rival_workers.store.sql.idempotency import IdempotencySql
from rival_workers.store.sql.maintenance import MaintenanceSql, RetentionSql
from rival_workers.store.sql.operator import OperatorSql
from rival_workers.store.sql.schedules import SchedulesSql
from rival_workers.store.sql.settled_steps import SettledStepsSql
from rival_workers.store.sql.stopped_runs import ExpirySql, OrphansSql
from rival_workers.store.sql.sweeps import SweepsSql


@repeating_conflicts
class SqlStore(
    ClaimsSql,
    ExpirySql,
    MaintenanceSql,
    OrphansSql,
    ExecutorsSql,
    RetentionSql,
    SweepsSql,
    EventsSql,
    FlowsSql,
    FlowCommitsSql,
    ExternalStepsSql,
    SettledStepsSql,
    OperatorSql,
    SchedulesSql,
    BreakersSql,
    IdempotencySql,
    GroupCommits,
):
    # -- definitions --------------------------------------------------------------------------------------

    def register_workflow(
        self,
        name: str,
        plan: Plan,
        input_schema: dict[str, Any] | None,
        description: str | None,
        retention: float | None = None,
        policies: PolicyDocument = NO_POLICIES,
        limits: Sequence[Limit] = (),
        queue: str | None = None,
        priority: Priority | None = None,
    ) -> None:
        """Store the version once; the version registered last is the one that new runs take."""
        row = {
            "name": name,
            "version": plan.version,
            "plan": plan.model_dump(mode="json"),
            "input_schema": input_schema,
            "description": description,
            "retention": retention,
            "policies": policies.dump(),
            "queue": queue,
            "priority": level_of(priority),
            "registered_at": now(),
            "activated_at": now(),
        }
        with self.database.transaction() as connection:
            stored = _upsert_workflow(connection, row)
            if stored != json.loads(serialise(row["policies"])):
                _replace_policies(connection, row, stored)
            all_limits = [*limits_of(Policies(name, plan, policies)), *limits]
            for limit in sorted(all_limits, key=lambda one: one.gate_name):
                register_limit(connection, limit)

    def load_workflow(self, name: str, version: str) -> WorkflowInfo | None:
        with self.database.autocommit() as connection:
            return workflow_version(connection, name, version)

    # -- logs and history ---------------------------------------------------------------------------------

    def append_logs(self, run_id: str, entries: Sequence[LogEntry], again: bool = False) -> None:
        """Append in order, in one transaction. `again`: an earlier call with these entries may have been committed."""
        opened = self.database.autocommit if self.database.is_postgres else self.database.transaction
        with opened() as connection:
            left = _without_stored(connection, run_id, entries) if again else entries
            if left:
                append_to_log(connection, run_id, left)

    def record(self, run_id: str, path: str | None, what: str, by: str | None, **detail: Any) -> None:
        with self.database.transaction() as connection:
            record(connection, run_id, path, what, by=by, **detail)


# -- registering workflows ----------------------------------------------------------------------------------


def _upsert_workflow(connection: Connection, row: dict[str, Any]) -> dict[str, Any] | None:
    """Lock the row of the version. Its policies stay as they are stored, and are returned."""
    statement = dialect_of(connection).insert(workflows).values(row)
    changing = ("input_schema", "description", "retention", "queue", "priority", "activated_at")
    changes = {name: statement.excluded[name] for name in changing}
    upsert = statement.on_conflict_do_update(index_elements=["name", "version"], set_=changes)
    stored: dict[str, Any] | None = connection.execute(upsert.returning(workflows.c.policies)).scalar_one()
    return stored


def _replace_policies(connection: Connection, row: dict[str, Any], stored: dict[str, Any] | None) -> None:
    """Keep the stored ones, which explain the attempts that began with them. The row is locked, and the time is that of
    the statement: the transaction may have begun before the last replacement."""
    earlier, name, version = earlier_policies, row["name"], row["version"]
    kept = {"workflow": name, "version": version, "until": clock(), "policies": stored}
    # A conflict: they were stored at this very time, so no attempt began with them.
    connection.execute(dialect_of(connection).insert(earlier).values(kept).on_conflict_do_nothing())
    of_version = (workflows.c.name == name, workflows.c.version == version)
    connection.execute(update(workflows).where(*of_version).values(policies=row["policies"]))
    # No attempt of a stored run began before the oldest run was created.
    oldest = select(func.min(runs.c.created_at)).where(runs.c.workflow == name).scalar_subquery()
    is_its = (earlier.c.workflow == name, earlier.c.version == version)
    connection.execute(delete(earlier).where(*is_its, earlier.c.until < oldest))


# -- appending logs -----------------------------------------------------------------------------------------
#
# A reader that follows a log asks for entries after the last id that it has seen. So the ids of a run must become
# visible in their order, also when several of its steps write at once.

# One statement in autocommit: the lock serializes the writers of a run, and a client that freezes does not hold it.
# The sort is below the insert, so ids are drawn after the lock and in this order.
_APPEND = text("""
WITH locked AS MATERIALIZED (SELECT pg_advisory_xact_lock(1919511916, hashtext(:run_id)))
INSERT INTO rival_logs (run_id, path, attempt, level, message, fields, at)
SELECT :run_id, e.path, e.attempt, e.level, e.message, CAST(e.fields AS json), e.at
FROM locked, unnest(CAST(:paths AS text[]), CAST(:attempts AS integer[]), CAST(:levels AS text[]),
                  CAST(:messages AS text[]), CAST(:fields AS text[]), CAST(:ats AS timestamptz[]))
           WITH ORDINALITY AS e(path, attempt, level, message, fields, at, place)
WHERE EXISTS (SELECT 1 FROM rival_runs WHERE id = :run_id)
ORDER BY e.place
""")


def append_to_log(connection: Connection, run_id: str, entries: Sequence[LogEntry]) -> None:
    """Store nothing if the run was deleted: retention would never find entries written after it."""
    if connection.dialect.name == "postgresql":
        connection.execute(_APPEND, {"run_id": run_id, **_columns(entries)})
    elif connection.execute(select(runs.c.id).where(runs.c.id == run_id)).first() is not None:
        connection.execute(insert(logs), [{"run_id": run_id, **_log_row(entry)} for entry in entries])


def _without_stored(connection: Connection, run_id: str, entries: Sequence[LogEntry]) -> list[LogEntry]:
    """The entries that were not stored when the answer to an append was lost. Entries of one attempt have distinct
    times."""
    first = min(entry.at for entry in entries)
    found = connection.execute(
        select(logs.c.path, logs.c.attempt, logs.c.at).where(logs.c.run_id == run_id, logs.c.at >= first)
    )
    stored = {(row.path, row.attempt, row.at) for row in found}
    return [entry for entry in entries if (entry.path, entry.attempt, entry.at) not in stored]


def _columns(entries: Sequence[LogEntry]) -> dict[str, list[Any]]:
    return {
        "paths": [e.path for e in entries],
        "attempts": [e.attempt for e in entries],
        "levels": [e.level for e in entries],
        "messages": [e.message for e in entries],
        "fields": [serialise(e.fields) for e in entries],
        "ats": [e.at for e in entries],
    }


def _log_row(entry: LogEntry) -> dict[str, Any]:
    return {
        "path": entry.path,
        "attempt": entry.attempt,
        "level": entry.level,
        "message": entry.message,
        "fields": entry.fields,
        "at": entry.at,
    }
