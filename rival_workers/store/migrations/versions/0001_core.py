"""The core: workflows, runs, steps, attempts, history, logs, executors."""

# ruff: noqa: E501
import sqlalchemy as sa
from alembic import op

from rival_workers.store.migrations.frozen import JsonbPayload as Payload
from rival_workers.store.migrations.frozen import Timestamp

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

Name = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
BigId = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "rival_attempts",
        sa.Column("run_id", Name, primary_key=True),
        sa.Column("path", Name, primary_key=True),
        sa.Column("token", sa.Integer, primary_key=True),
        sa.Column("attempt", sa.Integer, nullable=False),
        sa.Column("outcome", sa.Text, nullable=False),
        sa.Column("error", Payload),
        sa.Column("executor_id", Name),
        sa.Column("started_at", Timestamp),
        sa.Column("ended_at", Timestamp, nullable=False),
    )
    op.create_table(
        "rival_executors",
        sa.Column("id", Name, primary_key=True),
        sa.Column("host", sa.Text, nullable=False),
        sa.Column("pid", sa.Integer, nullable=False),
        sa.Column("worker", sa.Text, nullable=False),
        sa.Column("started_at", Timestamp, nullable=False),
        sa.Column("beat_at", Timestamp, nullable=False),
        sa.Column("expires_at", Timestamp, nullable=False),
    )
    op.create_table(
        "rival_history",
        sa.Column("id", BigId, sa.Identity(always=True), primary_key=True),
        sa.Column("run_id", Name, nullable=False),
        sa.Column("path", Name),
        sa.Column("what", sa.Text, nullable=False),
        sa.Column("detail", Payload),
        sa.Column("at", Timestamp, nullable=False),
    )
    op.create_index("rival_history_run", "rival_history", ["run_id", "id"])
    op.create_table(
        "rival_logs",
        sa.Column("id", BigId, sa.Identity(always=True), primary_key=True),
        sa.Column("run_id", Name, nullable=False),
        sa.Column("path", Name, nullable=False),
        sa.Column("attempt", sa.Integer, nullable=False),
        sa.Column("level", sa.Text, nullable=False),
        sa.Column("message", sa.Text, nullable=False),
        sa.Column("fields", Payload),
        sa.Column("at", Timestamp, nullable=False),
    )
    op.create_index("rival_logs_run", "rival_logs", ["run_id", "id"])
    op.create_table(
        "rival_runs",
        sa.Column("id", Name, primary_key=True),
        sa.Column("workflow", Name, nullable=False),
        sa.Column("version", Name, nullable=False),
        sa.Column("status", Name, nullable=False),
        sa.Column("token", sa.Integer, nullable=False, server_default="0"),
        sa.Column("input", Payload),
        sa.Column("result", Payload),
        sa.Column("error", Payload),
        sa.Column("failed_step", Name),
        sa.Column("parked", sa.Text),
        sa.Column("ring_at", Timestamp),
        sa.Column("rings", sa.Integer, nullable=False, server_default="0"),
        sa.Column("created_at", Timestamp, nullable=False),
        sa.Column("started_at", Timestamp),
        sa.Column("completed_at", Timestamp),
        sa.CheckConstraint(
            "CASE WHEN completed_at IS NULL THEN status IN ('pending', 'running', 'suspended') AND (status <> 'running' OR started_at IS NOT NULL) ELSE ring_at IS NULL AND status IN ('completed', 'failed', 'cancelled') AND (status <> 'failed' OR error IS NOT NULL) END",
            name="rival_runs_possible",
        ),
    )
    op.create_index("rival_runs_by_workflow", "rival_runs", ["workflow", "created_at", "id"])
    op.create_index(
        "rival_runs_completed", "rival_runs", ["completed_at"], postgresql_where=sa.text("completed_at IS NOT NULL")
    )
    op.create_index(
        "rival_runs_not_completed",
        "rival_runs",
        ["status", "created_at", "id"],
        postgresql_where=sa.text("status <> 'completed'"),
    )
    op.create_index("rival_runs_recent", "rival_runs", ["created_at", "id"])
    op.create_index("rival_runs_ring", "rival_runs", ["ring_at"], postgresql_where=sa.text("ring_at IS NOT NULL"))
    op.create_table(
        "rival_steps",
        sa.Column("run_id", Name, primary_key=True),
        sa.Column("path", Name, primary_key=True),
        sa.Column("kind", Name, nullable=False),
        sa.Column("status", Name, nullable=False),
        sa.Column("attempts", sa.Integer, nullable=False, server_default="0"),
        sa.Column("lost", sa.Integer, nullable=False, server_default="0"),
        sa.Column("execution_token", sa.Integer, nullable=False, server_default="0"),
        sa.Column("timeout_token", sa.Integer, nullable=False, server_default="0"),
        sa.Column("executor_id", Name),
        sa.Column("result", Payload),
        sa.Column("state", Payload),
        sa.Column("error", Payload),
        sa.Column("parked", sa.Text),
        sa.Column("due_at", Timestamp),
        sa.Column("timeout_at", Timestamp),
        sa.Column("ring_at", Timestamp),
        sa.Column("rings", sa.Integer, nullable=False, server_default="0"),
        sa.Column("created_at", Timestamp, nullable=False),
        sa.Column("started_at", Timestamp),
        sa.Column("completed_at", Timestamp),
        sa.CheckConstraint(
            "CASE WHEN completed_at IS NULL THEN status IN ('pending', 'running', 'waiting_retry', 'waiting') AND ((status <> 'running' OR executor_id IS NOT NULL) AND (status <> 'waiting_retry' OR due_at IS NOT NULL)) ELSE ring_at IS NULL AND status IN ('completed', 'skipped', 'failed', 'cancelled') AND (status <> 'failed' OR error IS NOT NULL) END",
            name="rival_steps_possible",
        ),
    )
    op.create_index("rival_steps_ring", "rival_steps", ["ring_at"], postgresql_where=sa.text("ring_at IS NOT NULL"))
    op.create_table(
        "rival_workflows",
        sa.Column("name", Name, primary_key=True),
        sa.Column("version", Name, primary_key=True),
        sa.Column("plan", Payload, nullable=False),
        sa.Column("input_schema", Payload),
        sa.Column("description", sa.Text),
        sa.Column("registered_at", Timestamp, nullable=False),
        sa.Column("activated_at", Timestamp, nullable=False),
    )
