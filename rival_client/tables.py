"""The tables, once, for Postgres and SQLite. What may be in them is written as constraints, not hoped for."""

from __future__ import annotations

import datetime as dt
from typing import Any

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    DateTime,
    Dialect,
    Float,
    Identity,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement
from sqlalchemy.types import JSON, TypeDecorator, TypeEngine

RUN_TERMINAL = ("completed", "failed", "cancelled")
STEP_TERMINAL = ("completed", "skipped", "failed", "cancelled")
RUN_STATUSES = ("pending", "running", "suspended", *RUN_TERMINAL)
STEP_STATUSES = ("pending", "running", "waiting_retry", "waiting", *STEP_TERMINAL)


class Timestamp(TypeDecorator[dt.datetime]):
    """timestamptz on Postgres; seconds since the epoch on SQLite, which has no such type."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        return dialect.type_descriptor(Float() if dialect.name == "sqlite" else DateTime(timezone=True))

    def process_bind_param(self, value: dt.datetime | None, dialect: Dialect) -> Any:
        return value.timestamp() if value is not None and dialect.name == "sqlite" else value

    def process_result_value(self, value: Any, dialect: Dialect) -> dt.datetime | None:
        if value is None or dialect.name != "sqlite":
            return value  # type: ignore[no-any-return]
        return dt.datetime.fromtimestamp(value, dt.UTC)


class now(FunctionElement[dt.datetime]):
    """The database's clock: the only one that decides what is due."""

    type = Timestamp()
    inherit_cache = True
    name = "now"


class after(FunctionElement[dt.datetime]):
    """The database's clock plus some seconds."""

    type = Timestamp()
    inherit_cache = True
    name = "after"


@compiles(now, "postgresql")
def _now_pg(element: now, compiler: Any, **kw: Any) -> str:
    return "now()"


@compiles(now, "sqlite")
def _now_sqlite(element: now, compiler: Any, **kw: Any) -> str:
    return "rival_now()"


@compiles(after, "postgresql")
def _after_pg(element: after, compiler: Any, **kw: Any) -> str:
    return f"(now() + make_interval(secs => CAST({compiler.process(element.clauses, **kw)} AS double precision)))"


@compiles(after, "sqlite")
def _after_sqlite(element: after, compiler: Any, **kw: Any) -> str:
    return f"(rival_now() + {compiler.process(element.clauses, **kw)})"


Payload = JSON(none_as_null=True).with_variant(JSONB(none_as_null=True), "postgresql")
_BigId = BigInteger().with_variant(Integer(), "sqlite")

metadata = MetaData()


def _one_of(column: str, values: tuple[str, ...]) -> str:
    return f"{column} IN ({', '.join(repr(v) for v in values)})"


def _iff(left: str, right: str) -> str:
    return f"({left}) = ({right})"


workflows = Table(
    "rival_workflows",
    metadata,
    Column("name", String, primary_key=True),
    Column("version", String, primary_key=True),
    Column("plan", Payload, nullable=False),
    Column("input_schema", Payload),
    Column("description", Text),
    Column("registered_at", Timestamp, nullable=False),
    # New runs take the version that was activated last: the one the newest worker brought.
    Column("activated_at", Timestamp, nullable=False),
)

runs = Table(
    "rival_runs",
    metadata,
    Column("id", String, primary_key=True),
    Column("workflow", String, nullable=False),
    Column("version", String, nullable=False),
    Column("status", String, nullable=False),
    Column("token", Integer, nullable=False, server_default="0"),
    Column("input", Payload),
    Column("result", Payload),
    Column("error", Payload),
    Column("failed_step", String),
    Column("parked", Text),
    Column("ring_at", Timestamp),
    Column("rings", Integer, nullable=False, server_default="0"),
    Column("created_at", Timestamp, nullable=False),
    Column("started_at", Timestamp),
    Column("completed_at", Timestamp),
    CheckConstraint(_one_of("status", RUN_STATUSES), name="rival_runs_status"),
    CheckConstraint(_iff(_one_of("status", RUN_TERMINAL), "completed_at IS NOT NULL"), name="rival_runs_terminal"),
    CheckConstraint("status <> 'failed' OR error IS NOT NULL", name="rival_runs_failed"),
    CheckConstraint("status <> 'running' OR started_at IS NOT NULL", name="rival_runs_started"),
    CheckConstraint(
        f"ring_at IS NULL OR NOT ({_one_of('status', RUN_TERMINAL)})", name="rival_runs_quiet_when_terminal"
    ),
    CheckConstraint("token >= 0", name="rival_runs_token"),
)

# No foreign key to the run: each step's insert would lock and dirty the run's row. Steps are only ever
# inserted by a transition of their run, and retention deletes them before it.
steps = Table(
    "rival_steps",
    metadata,
    Column("run_id", String, primary_key=True),
    Column("path", String, primary_key=True),
    Column("kind", String, nullable=False),
    Column("status", String, nullable=False),
    Column("attempts", Integer, nullable=False, server_default="0"),
    Column("lost", Integer, nullable=False, server_default="0"),
    Column("execution_token", Integer, nullable=False, server_default="0"),
    Column("timeout_token", Integer, nullable=False, server_default="0"),
    Column("executor_id", String),
    Column("result", Payload),
    Column("state", Payload),
    Column("error", Payload),
    Column("parked", Text),
    Column("due_at", Timestamp),
    Column("timeout_at", Timestamp),
    Column("ring_at", Timestamp),
    Column("rings", Integer, nullable=False, server_default="0"),
    Column("created_at", Timestamp, nullable=False),
    Column("started_at", Timestamp),
    Column("completed_at", Timestamp),
    CheckConstraint(_one_of("status", STEP_STATUSES), name="rival_steps_status"),
    CheckConstraint(_iff(_one_of("status", STEP_TERMINAL), "completed_at IS NOT NULL"), name="rival_steps_terminal"),
    CheckConstraint(
        "status <> 'running' OR (executor_id IS NOT NULL AND started_at IS NOT NULL)",
        name="rival_steps_running",
    ),
    CheckConstraint("status <> 'waiting_retry' OR due_at IS NOT NULL", name="rival_steps_retry"),
    CheckConstraint("status <> 'failed' OR error IS NOT NULL", name="rival_steps_failed"),
    CheckConstraint(
        f"ring_at IS NULL OR NOT ({_one_of('status', STEP_TERMINAL)})", name="rival_steps_quiet_when_terminal"
    ),
    CheckConstraint(
        "attempts >= 0 AND lost >= 0 AND execution_token >= 0 AND timeout_token >= 0",
        name="rival_steps_counters",
    ),
)

attempts = Table(
    "rival_attempts",
    metadata,
    Column("run_id", String, primary_key=True),
    Column("path", String, primary_key=True),
    # The token the attempt held: unique per start, also for attempts that were lost and don't count.
    Column("token", Integer, primary_key=True),
    Column("attempt", Integer, nullable=False),
    Column("outcome", String, nullable=False),
    Column("error", Payload),
    Column("executor_id", String),
    Column("started_at", Timestamp),
    Column("ended_at", Timestamp, nullable=False),
)

history = Table(
    "rival_history",
    metadata,
    Column("id", _BigId, Identity(always=True), primary_key=True),
    Column("run_id", String, nullable=False),
    Column("path", String),
    Column("what", String, nullable=False),
    Column("detail", Payload),
    Column("at", Timestamp, nullable=False),
)

logs = Table(
    "rival_logs",
    metadata,
    Column("id", _BigId, Identity(always=True), primary_key=True),
    Column("run_id", String, nullable=False),
    Column("path", String, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("level", String, nullable=False),
    Column("message", Text, nullable=False),
    Column("fields", Payload),
    Column("at", Timestamp, nullable=False),
)

executors = Table(
    "rival_executors",
    metadata,
    Column("id", String, primary_key=True),
    Column("host", String, nullable=False),
    Column("pid", Integer, nullable=False),
    Column("worker", String, nullable=False),
    Column("started_at", Timestamp, nullable=False),
    Column("beat_at", Timestamp, nullable=False),
    Column("expires_at", Timestamp, nullable=False),
)

# The keeper's whole work list: what must be looked at, and when.
Index("rival_runs_ring", runs.c.ring_at, postgresql_where=text("ring_at IS NOT NULL"))
Index("rival_steps_ring", steps.c.ring_at, postgresql_where=text("ring_at IS NOT NULL"))
# Takeover: the attempts in flight, which are as many as the fleet has hands, not as there are runs.
Index("rival_steps_running", steps.c.executor_id, postgresql_where=text("status = 'running'"))
# Listing and retention.
Index("rival_runs_recent", runs.c.created_at, runs.c.id)
Index("rival_runs_by_workflow", runs.c.workflow, runs.c.created_at, runs.c.id)
Index(
    "rival_runs_not_completed",
    runs.c.status,
    runs.c.created_at,
    runs.c.id,
    postgresql_where=text("status <> 'completed'"),
)
Index("rival_runs_completed", runs.c.completed_at, postgresql_where=text("completed_at IS NOT NULL"))
Index("rival_history_run", history.c.run_id, history.c.id)
Index("rival_logs_run", logs.c.run_id, logs.c.id)
