"""The core: workflows, runs, steps, attempts, history, logs, executors."""

# ruff: noqa: E501
import sqlalchemy as sa
from alembic import op

from rival_client.tables import Payload, Timestamp

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

BigId = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "rival_attempts",
        sa.Column("run_id", sa.String, primary_key=True),
        sa.Column("path", sa.String, primary_key=True),
        sa.Column("token", sa.Integer, primary_key=True),
        sa.Column("attempt", sa.Integer, nullable=False),
        sa.Column("outcome", sa.String, nullable=False),
        sa.Column("error", Payload),
        sa.Column("executor_id", sa.String),
        sa.Column("started_at", Timestamp),
        sa.Column("ended_at", Timestamp, nullable=False),
    )
    op.create_table(
        "rival_executors",
        sa.Column("id", sa.String, primary_key=True),
        sa.Column("host", sa.String, nullable=False),
        sa.Column("pid", sa.Integer, nullable=False),
        sa.Column("worker", sa.String, nullable=False),
        sa.Column("started_at", Timestamp, nullable=False),
        sa.Column("beat_at", Timestamp, nullable=False),
        sa.Column("expires_at", Timestamp, nullable=False),
    )
    op.create_table(
        "rival_history",
        sa.Column("id", BigId, sa.Identity(always=True), primary_key=True),
        sa.Column("run_id", sa.String, nullable=False),
        sa.Column("path", sa.String),
        sa.Column("what", sa.String, nullable=False),
        sa.Column("detail", Payload),
        sa.Column("at", Timestamp, nullable=False),
    )
    op.create_index("rival_history_run", "rival_history", ["run_id", "id"])
    op.create_table(
        "rival_logs",
        sa.Column("id", BigId, sa.Identity(always=True), primary_key=True),
        sa.Column("run_id", sa.String, nullable=False),
        sa.Column("path", sa.String, nullable=False),
        sa.Column("attempt", sa.Integer, nullable=False),
        sa.Column("level", sa.String, nullable=False),
        sa.Column("message", sa.Text, nullable=False),
        sa.Column("fields", Payload),
        sa.Column("at", Timestamp, nullable=False),
    )
    op.create_index("rival_logs_run", "rival_logs", ["run_id", "id"])
    op.create_table(
        "rival_runs",
        sa.Column("id", sa.String, primary_key=True),
        sa.Column("workflow", sa.String, nullable=False),
        sa.Column("version", sa.String, nullable=False),
        sa.Column("status", sa.String, nullable=False),
        sa.Column("token", sa.Integer, nullable=False, server_default="0"),
        sa.Column("input", Payload),
        sa.Column("result", Payload),
        sa.Column("error", Payload),
        sa.Column("failed_step", sa.String),
        sa.Column("parked", sa.Text),
        sa.Column("ring_at", Timestamp),
        sa.Column("rings", sa.Integer, nullable=False, server_default="0"),
        sa.Column("created_at", Timestamp, nullable=False),
        sa.Column("started_at", Timestamp),
        sa.Column("completed_at", Timestamp),
        sa.CheckConstraint("status <> 'failed' OR error IS NOT NULL", name="rival_runs_failed"),
        sa.CheckConstraint(
            "ring_at IS NULL OR NOT (status IN ('completed', 'failed', 'cancelled'))",
            name="rival_runs_quiet_when_terminal",
        ),
        sa.CheckConstraint("status <> 'running' OR started_at IS NOT NULL", name="rival_runs_started"),
        sa.CheckConstraint(
            "status IN ('pending', 'running', 'suspended', 'completed', 'failed', 'cancelled')",
            name="rival_runs_status",
        ),
        sa.CheckConstraint(
            "(status IN ('completed', 'failed', 'cancelled')) = (completed_at IS NOT NULL)", name="rival_runs_terminal"
        ),
        sa.CheckConstraint("token >= 0", name="rival_runs_token"),
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
        sa.Column("run_id", sa.String, primary_key=True),
        sa.Column("path", sa.String, primary_key=True),
        sa.Column("kind", sa.String, nullable=False),
        sa.Column("status", sa.String, nullable=False),
        sa.Column("attempts", sa.Integer, nullable=False, server_default="0"),
        sa.Column("lost", sa.Integer, nullable=False, server_default="0"),
        sa.Column("execution_token", sa.Integer, nullable=False, server_default="0"),
        sa.Column("timeout_token", sa.Integer, nullable=False, server_default="0"),
        sa.Column("executor_id", sa.String),
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
            "attempts >= 0 AND lost >= 0 AND execution_token >= 0 AND timeout_token >= 0", name="rival_steps_counters"
        ),
        sa.CheckConstraint("status <> 'failed' OR error IS NOT NULL", name="rival_steps_failed"),
        sa.CheckConstraint(
            "ring_at IS NULL OR NOT (status IN ('completed', 'skipped', 'failed', 'cancelled'))",
            name="rival_steps_quiet_when_terminal",
        ),
        sa.CheckConstraint("status <> 'waiting_retry' OR due_at IS NOT NULL", name="rival_steps_retry"),
        sa.CheckConstraint(
            "status <> 'running' OR (executor_id IS NOT NULL AND started_at IS NOT NULL)", name="rival_steps_running"
        ),
        sa.CheckConstraint(
            "status IN ('pending', 'running', 'waiting_retry', 'waiting', 'completed', 'skipped', 'failed', 'cancelled')",
            name="rival_steps_status",
        ),
        sa.CheckConstraint(
            "(status IN ('completed', 'skipped', 'failed', 'cancelled')) = (completed_at IS NOT NULL)",
            name="rival_steps_terminal",
        ),
    )
    op.create_index("rival_steps_ring", "rival_steps", ["ring_at"], postgresql_where=sa.text("ring_at IS NOT NULL"))
    op.create_index(
        "rival_steps_running", "rival_steps", ["executor_id"], postgresql_where=sa.text("status = 'running'")
    )
    op.create_table(
        "rival_workflows",
        sa.Column("name", sa.String, primary_key=True),
        sa.Column("version", sa.String, primary_key=True),
        sa.Column("plan", Payload, nullable=False),
        sa.Column("input_schema", Payload),
        sa.Column("description", sa.Text),
        sa.Column("registered_at", Timestamp, nullable=False),
        sa.Column("activated_at", Timestamp, nullable=False),
    )
